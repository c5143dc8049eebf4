//! A span of a model's history as one SVG: panels one below the other over the same time.
//!
//! Colours stand in the picture as in the light theme; the stylesheet replaces them by name in the dark one.

use std::error::Error;
use std::fmt::Write;

use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, WithKeyPoints};
use plotters::coord::types::{RangedCoordf64, RangedCoordi64};
use plotters::prelude::*;

use super::figures::{short, time_of_day};
use crate::history::{Bucket, Span};

/// Widths that are drawn, in CSS pixels.
const WIDTH_MIN: u32 = 280;
const WIDTH_MAX: u32 = 1600;

/// Units of the picture in a CSS pixel: plotters draws at whole units, and a bar of the hour may be narrower than a pixel.
const UNITS: u32 = 4;

/// Heights in CSS pixels.
const PANEL: u32 = 104;
const FIRST_PANEL: u32 = 168;
const TIMES: u32 = 20;
const CAPTION: u32 = 26;
/// For the numbers left of a panel.
const LEFT: u32 = 44;
/// Plotters draws text a fifth smaller than it is told.
const TEXT: u32 = 14;

const CACHED: RGBColor = RGBColor(0x1f, 0x7a, 0x5c);
const COMPUTED: RGBColor = RGBColor(0xc7, 0x75, 0x1f);
const UNMEASURED: RGBColor = RGBColor(0x80, 0x86, 0x90);
const COMPLETION: RGBColor = RGBColor(0x5b, 0x5f, 0xc7);
const P50: RGBColor = RGBColor(0x1f, 0x5f, 0x8b);
const P95: RGBColor = RGBColor(0xb2, 0x3a, 0x6f);
const PARKED: RGBColor = RGBColor(0x7a, 0x5b, 0xa6);
const LINES: RGBColor = RGBColor(0xdd, 0xe1, 0xe6);
const INK: RGBColor = RGBColor(0x4a, 0x50, 0x5a);

type Figure = fn(&Bucket) -> Option<f64>;

struct Panel {
    caption: &'static str,
    height: u32,
    /// Whether the figures are stacked bars, and not lines. Those of bars are counted, and shown for a second.
    bars: bool,
    figures: &'static [(RGBColor, Figure)],
}

const PANELS: [Panel; 5] = [
    Panel {
        caption: "Prompt tokens a second",
        height: FIRST_PANEL,
        bars: true,
        figures: &[
            (CACHED, |bucket| Some(bucket.cached_tokens as f64)),
            (COMPUTED, |bucket| Some(bucket.computed_tokens as f64)),
            (UNMEASURED, |bucket| Some(bucket.unmeasured_tokens as f64)),
        ],
    },
    Panel {
        caption: "Completion tokens a second",
        height: PANEL,
        bars: true,
        figures: &[(COMPLETION, |bucket| Some(bucket.completion_tokens as f64))],
    },
    Panel {
        caption: "Time to first byte, seconds",
        height: PANEL,
        bars: false,
        figures: &[
            (P50, |bucket| bucket.first_byte_p50_s.map(f64::from)),
            (P95, |bucket| bucket.first_byte_p95_s.map(f64::from)),
        ],
    },
    Panel {
        caption: "Parked requests",
        height: PANEL,
        bars: false,
        figures: &[(PARKED, |bucket| (bucket.parked > 0).then_some(bucket.parked as f64))],
    },
    Panel {
        caption: "Longest wait for room, seconds",
        height: PANEL,
        bars: false,
        figures: &[(PARKED, |bucket| (bucket.waits > 0).then_some(bucket.longest_wait_s.into()))],
    },
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<WithKeyPoints<RangedCoordi64>, RangedCoordf64>>;
type Drawn<T> = Result<T, Box<dyn Error>>;

/// What is drawn.
pub struct Picture<'a> {
    pub span: Span,
    /// Its end, in seconds since 1970.
    pub until: u64,
    pub buckets: &'a [Bucket],
    /// In CSS pixels; what is out of range is brought into it.
    pub width: u32,
}

impl Picture<'_> {
    /// The SVG, with `label` for those who do not see it and `hover` for each bucket under the pointer.
    ///
    /// # Errors
    /// If plotters cannot draw, for which no reason is known.
    pub fn svg(&self, label: &str, hover: impl Fn(&Bucket) -> String) -> Drawn<String> {
        let width = self.width.clamp(WIDTH_MIN, WIDTH_MAX) * UNITS;
        let height = (PANELS.iter().map(|panel| panel.height).sum::<u32>() + TIMES) * UNITS;
        let mut svg = String::new();
        let columns = {
            let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
            let mut columns = Vec::new();
            let mut top = 0;
            for (index, panel) in PANELS.iter().enumerate() {
                let last = index + 1 == PANELS.len();
                let tall = panel.height + if last { TIMES } else { 0 };
                let area = root.clone().shrink((0, top * UNITS), (width, tall * UNITS));
                columns = self.panel(&area, panel, last)?;
                top += tall;
            }
            root.present()?;
            columns
        };
        let end = svg.rfind("</svg>").ok_or("an SVG that does not end")?;
        svg.truncate(end);
        self.write_hover(&mut svg, &columns, height, hover)?;
        svg.push_str("</svg>");
        let label = maud::html! { (label) }.into_string();
        Ok(svg.replacen("<svg ", &format!("<svg class=\"chart\" role=\"img\" aria-label=\"{label}\" "), 1))
    }

    /// Draws a panel. Returns where each bucket begins and ends, in units.
    fn panel(&self, area: &Area<'_>, panel: &Panel, times: bool) -> Drawn<Vec<(i32, i32)>> {
        let step_s = self.span.step_s() as f64;
        let per = if panel.bars { step_s } else { 1.0 };
        let highest = self.buckets.iter().map(|bucket| {
            let values = panel.figures.iter().filter_map(|(_, figure)| figure(bucket));
            if panel.bars { values.sum() } else { values.fold(0.0, f64::max) }
        });
        let top = (highest.fold(0.0, f64::max) / per).max(1.0) * 1.05;
        area.draw(&Text::new(panel.caption, ((LEFT * UNITS) as i32, (6 * UNITS) as i32), font(TEXT + 1)))?;
        let (until, from) = (self.until as i64, self.from());
        let mut chart: Chart = ChartBuilder::on(area)
            .margin_top(CAPTION * UNITS)
            .margin_right(20 * UNITS)
            .set_label_area_size(LabelAreaPosition::Left, LEFT * UNITS)
            .set_label_area_size(LabelAreaPosition::Bottom, if times { TIMES * UNITS } else { 4 * UNITS })
            .build_cartesian_2d((from..until).with_key_points(self.ticks()), 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT)
            .bold_line_style(LINES.stroke_width(UNITS))
            .axis_style(LINES.stroke_width(UNITS));
        mesh.disable_x_mesh().y_labels(3).y_label_formatter(&|value| short(*value)).label_style(font(TEXT));
        let clock = |at: &i64| time_of_day(*at as u64)[..5].to_owned();
        mesh.x_label_formatter(&clock);
        if !times {
            mesh.disable_x_axis();
        }
        mesh.draw()?;
        match panel.bars {
            true => self.bars(&mut chart, panel)?,
            false => self.lines(&mut chart, panel)?,
        }
        let x = |at: i64| chart.plotting_area().map_coordinate(&(at, 0.0)).0;
        Ok(self.buckets.iter().map(|bucket| self.stretch(bucket)).map(|(from, to)| (x(from), x(to))).collect())
    }

    fn bars(&self, chart: &mut Chart, panel: &Panel) -> Drawn<()> {
        let step_s = self.span.step_s() as f64;
        let mut bases = vec![0.0; self.buckets.len()];
        for (color, figure) in panel.figures {
            let stacked = self.buckets.iter().zip(&mut bases).filter_map(|(bucket, base)| {
                let value = figure(bucket).filter(|value| *value > 0.0)? / step_s;
                let (from, to) = self.stretch(bucket);
                let bar = [(from, *base), (to, *base + value)];
                *base += value;
                Some(Rectangle::new(bar, color.filled()))
            });
            chart.draw_series(stacked)?;
        }
        Ok(())
    }

    /// A level for each bucket, joined where they follow each other.
    fn lines(&self, chart: &mut Chart, panel: &Panel) -> Drawn<()> {
        for (color, figure) in panel.figures {
            let mut runs: Vec<Vec<(i64, f64)>> = Vec::new();
            for bucket in self.buckets {
                let Some(value) = figure(bucket) else { continue };
                let (from, to) = self.stretch(bucket);
                match runs.last_mut().filter(|run| run.last().is_some_and(|(end, _)| *end == from)) {
                    Some(run) => run.extend([(from, value), (to, value)]),
                    None => runs.push(vec![(from, value), (to, value)]),
                }
            }
            let style = color.stroke_width(3 * UNITS / 2);
            chart.draw_series(runs.into_iter().map(|run| PathElement::new(run, style)))?;
        }
        Ok(())
    }

    /// One column a bucket over all panels, unseen, which says its numbers.
    fn write_hover(
        &self,
        svg: &mut String,
        columns: &[(i32, i32)],
        height: u32,
        hover: impl Fn(&Bucket) -> String,
    ) -> Drawn<()> {
        svg.push_str("<g class=\"hover\" fill=\"none\" pointer-events=\"all\">");
        for (bucket, (from, to)) in self.buckets.iter().zip(columns) {
            let width = (to - from).max(1);
            write!(svg, "<rect x=\"{from}\" y=\"0\" width=\"{width}\" height=\"{height}\">")?;
            write!(svg, "<title>{}</title></rect>", hover(bucket))?;
        }
        svg.push_str("</g>");
        Ok(())
    }

    /// The span's beginning; where the history is younger, so many sixths of it later that all of that is still shown.
    fn from(&self) -> i64 {
        let sixth = self.span.length_s() / 6;
        let age = self.buckets.first().map_or(0, |oldest| self.until.saturating_sub(oldest.at) + self.span.step_s());
        self.until as i64 - (age.div_ceil(sixth).clamp(1, 6) * sixth) as i64
    }

    /// When a bucket began and ended.
    fn stretch(&self, bucket: &Bucket) -> (i64, i64) {
        (bucket.at as i64 - self.span.step_s() as i64, bucket.at as i64)
    }

    /// Moments that are named: as many as the width has room for.
    fn ticks(&self) -> Vec<i64> {
        let most = if self.width >= 640 { 8 } else { 4 };
        let (from, until) = (self.from(), self.until as i64);
        let minutes = [1, 2, 5, 10, 20, 30, 60, 120, 180, 360].map(|minutes| 60 * minutes);
        let every = minutes.into_iter().find(|every| (until - from) / every <= most).unwrap_or(6 * 3600);
        // None so far to the left that it meets the numbers there.
        let first = (from + (until - from) / 16) / every * every + every;
        (first..=until).step_by(every as usize).collect()
    }
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size * UNITS).into_font().color(&INK)
}
