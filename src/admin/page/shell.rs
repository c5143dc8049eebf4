use maud::{DOCTYPE, Markup, html};

/// The frame of the page. The script fills its sections.
pub fn page() -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Homing" }
                link rel="icon" type="image/svg+xml" href="/icon.svg";
                link rel="stylesheet" href="/panel.css";
                script src="/panel.js" defer {}
            }
            body {
                a .skip href="#routing" { "Skip to the replicas" }
                header {
                    h1 { "Homing" }
                    p { "Every turn goes to the replica that holds its prefix cache." }
                    p #fresh { "Loading" }
                }
                p #trouble role="alert" hidden {}
                noscript {
                    p .note { "This page needs its script. The same numbers stand at /routing, /history and /decisions." }
                }
                (token_form())
                (confirmation())
                main hidden {
                    section #routing aria-labelledby="routing-title" {
                        h2 #routing-title { "Replica routing" }
                        div #models {}
                    }
                    section aria-labelledby="tokens-title" {
                        h2 #tokens-title { "Tokens per second" }
                        div #history {}
                    }
                    section aria-labelledby="decisions-title" {
                        h2 #decisions-title { "Last decisions" }
                        div #decisions {}
                    }
                }
                footer {
                    p { "Homing " (env!("CARGO_PKG_VERSION")) ". Times are UTC. As JSON: /routing, /history/MODEL, /decisions. As metrics: /metrics." }
                }
            }
        }
    }
}

/// Asks whether a replica is to be drained, or used again.
fn confirmation() -> Markup {
    html! {
        dialog #confirm aria-labelledby="confirm-text" {
            p #confirm-text {}
            button #confirm-no type="button" { "Cancel" }
            " "
            button #confirm-yes type="button" { "Drain" }
        }
    }
}

fn token_form() -> Markup {
    html! {
        form #token hidden aria-labelledby="token-title" {
            h2 #token-title { "Admin token" }
            p { "This address answers to those who bring its token. It is kept in this tab until you close it." }
            label for="token-value" { "Token" }
            input #token-value type="password" autocomplete="off" spellcheck="false" required;
            button type="submit" { "Show" }
        }
    }
}
