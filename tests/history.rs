//! What a model's history keeps, and for how long.

use homing::history::{Bucket, Ended, History, Span};

/// A request of these prompt tokens, some of them cached.
fn request(prompt: u64, cached: Option<u64>) -> Ended {
    Ended { routed: true, prompt: Some(prompt), cached, completion: 10, ..Ended::default() }
}

fn full(history: &History, span: Span) -> Vec<Bucket> {
    history.buckets(span).copied().collect()
}

#[test]
fn a_bucket_adds_up_what_ended_in_it() {
    let mut history = History::default();
    history.note(&request(100, Some(80)));
    history.note(&request(50, Some(0)));
    history.note(&request(7, None));
    history.note(&Ended { routed: true, ..Ended::default() });
    history.note(&Ended { parked_s: Some(1.5), ..Ended::default() });
    history.note(&Ended { parked_s: Some(3.0), ..request(1, None) });
    let filling = history.filling(Span::Hour);
    history.tick(1_000_000_010, 4);
    let [bucket] = full(&history, Span::Hour).try_into().expect("one bucket");
    assert_eq!(bucket, Bucket { at: 1_000_000_010, parked: 4, ..filling });
    assert_eq!((bucket.requests, bucket.completion_tokens), (5, 40));
    assert_eq!((bucket.cached_tokens, bucket.computed_tokens, bucket.unmeasured_tokens), (80, 70, 8));
    assert_eq!((bucket.waits, bucket.longest_wait_s), (2, 3.0));
    assert_eq!(history.filling(Span::Hour), Bucket::default());
}

#[test]
fn percentiles_of_the_first_byte_are_right_to_a_hundredth() {
    let mut history = History::default();
    assert_eq!(history.filling(Span::Hour).first_byte_p50_s, None);
    for tenths in 1..=1000 {
        history.note(&Ended { routed: true, first_byte_s: Some(f64::from(tenths) / 10.0), ..Ended::default() });
    }
    let bucket = history.filling(Span::Hour);
    let near = |value: Option<f32>, true_s: f32| value.is_some_and(|value| (value / true_s - 1.0).abs() <= 0.01);
    assert!(near(bucket.first_byte_p50_s, 50.0) && near(bucket.first_byte_p95_s, 95.0), "{bucket:?}");
    // Longer than an hour is an hour, and no error.
    history.note(&Ended { routed: true, first_byte_s: Some(1e9), ..Ended::default() });
    assert_eq!(history.filling(Span::Hour).requests, 1001);
}

#[test]
fn a_day_s_bucket_holds_those_of_two_minutes() {
    let mut history = History::default();
    let start = 1_000_000_080;
    for ten in 1..=24 {
        history.note(&request(100, Some(50)));
        history.tick(start + 10 * ten, ten);
    }
    let day = full(&history, Span::Day);
    assert_eq!(
        day.iter().map(|bucket| (bucket.at - start, bucket.requests, bucket.parked)).collect::<Vec<_>>(),
        [(120, 12, 12), (240, 12, 24)]
    );
    assert_eq!(full(&history, Span::Hour).len(), 24);
}

#[test]
fn an_hour_and_a_day_are_kept_and_no_more() {
    let mut history = History::default();
    let mut at = 1_000_000_080;
    for _ in 0..3 * 8640 {
        at += 10;
        history.note(&request(10, None));
        history.tick(at, 0);
    }
    for (span, seconds) in [(Span::Hour, 3600), (Span::Day, 86_400)] {
        let buckets = full(&history, span);
        assert_eq!(buckets.len(), span.buckets());
        assert_eq!(span.length_s(), seconds);
        assert_eq!(buckets[0].at, at - seconds + span.step_s(), "{span:?}");
        assert_eq!(buckets[span.buckets() - 1].at, at);
    }
}

#[test]
fn a_clock_set_back_gives_no_bucket_twice() {
    let mut history = History::default();
    history.tick(1_000_000_010, 0);
    history.note(&request(10, None));
    history.tick(1_000_000_010, 0);
    assert_eq!(full(&history, Span::Hour).len(), 1);
    history.tick(1_000_000_020, 0);
    assert_eq!(full(&history, Span::Hour)[1].requests, 1);
}
