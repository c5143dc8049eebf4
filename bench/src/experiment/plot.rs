//! The results as pictures: one SVG a figure, all arms in it.

use std::error::Error;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::published::{Published, PublishedArm, published};
use super::spread::{Figure, Spread};
use super::{ArmKind, Row};

struct Picture {
    file: &'static str,
    title: &'static str,
    logarithmic: bool,
    figure: Figure,
    published: fn(&Published) -> Option<f64>,
}

const PICTURES: [Picture; 6] = [
    Picture {
        file: "ttfb-p50.svg",
        title: "time to first byte, median, seconds",
        logarithmic: true,
        figure: |row| row.ttfb_p50_s,
        published: |row| Some(row.ttfb_p50_s),
    },
    Picture {
        file: "ttfb-p95.svg",
        title: "time to first byte, 95th percentile, seconds",
        logarithmic: true,
        figure: |row| row.ttfb_p95_s,
        published: |row| Some(row.ttfb_p95_s),
    },
    Picture {
        file: "hits.svg",
        title: "prefix cache hits of finished turns, percent",
        logarithmic: false,
        figure: |row| row.prefix_hit_ratio.map(|ratio| 100.0 * ratio),
        published: |row| Some(100.0 * row.prefix_hit_ratio),
    },
    Picture {
        file: "throughput.svg",
        title: "output tokens a minute",
        logarithmic: false,
        figure: |row| Some(row.output_tokens_per_min),
        published: |row| Some(row.output_tokens_per_min),
    },
    Picture {
        file: "busy.svg",
        title: "replicas with requests in flight",
        logarithmic: false,
        figure: |row| Some(row.replicas_busy),
        published: |row| Some(row.replicas_busy),
    },
    Picture {
        file: "session.svg",
        title: "time of a session, mean, seconds",
        logarithmic: false,
        figure: |row| row.session_mean_s,
        published: |_| None,
    },
];

/// The lowest value that a logarithmic picture shows, seconds.
const LEAST_S: f64 = 0.1;

/// The axis of sessions is this much longer than the tiers.
const ROOM_FOR_NAMES: f64 = 1.35;

/// Colours that can be told apart on white, also by the colour-blind (Paul Tol's muted scheme).
const COLORS: [RGBColor; 8] = [
    RGBColor(204, 102, 119),
    RGBColor(51, 34, 136),
    RGBColor(153, 153, 51),
    RGBColor(17, 119, 51),
    RGBColor(136, 204, 238),
    RGBColor(136, 34, 85),
    RGBColor(221, 204, 119),
    RGBColor(68, 170, 153),
];

/// Draws all pictures into `folder`, which is made if need be.
///
/// # Errors
/// A message that names the file that could not be written.
pub fn pictures(
    folder: &Path,
    rows: &[Row],
    arms: &[ArmKind],
    tiers: &[u32],
    with_published: bool,
) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for picture in &PICTURES {
        let file = folder.join(picture.file);
        draw(&file, picture, &lines(picture, rows, arms, tiers, with_published))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

struct Line {
    name: String,
    /// Sessions and the mean over the seeds.
    points: Vec<(f64, f64)>,
    /// A measured line, drawn as dots.
    measured: bool,
}

fn lines(picture: &Picture, rows: &[Row], arms: &[ArmKind], tiers: &[u32], with_published: bool) -> Vec<Line> {
    let mut lines: Vec<Line> = arms
        .iter()
        .map(|arm| {
            let mean = |tier: u32| Spread::of(rows, &arm.name(), tier, picture.figure).map(|spread| spread.mean);
            let points = tiers.iter().filter_map(|tier| Some((f64::from(*tier), mean(*tier)?))).collect();
            Line { name: arm.name(), points, measured: false }
        })
        .collect();
    if with_published {
        lines.extend([(PublishedArm::Off, "off, published"), (PublishedArm::On, "on, published")].map(
            |(arm, name)| {
                let figure = |tier: u32| published(arm, tier).and_then(|row| (picture.published)(&row));
                let points = tiers.iter().filter_map(|tier| Some((f64::from(*tier), figure(*tier)?))).collect();
                Line { name: name.to_owned(), points, measured: true }
            },
        ));
    }
    lines.retain(|line| !line.points.is_empty());
    lines
}

fn draw(file: &Path, picture: &Picture, lines: &[Line]) -> Result<(), Box<dyn Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|(_, y)| *y).fold(0.0, f64::max) * 1.1;
    let tiers = 0.0..points().map(|(x, _)| *x).fold(1.0, f64::max) * ROOM_FOR_NAMES;
    if picture.logarithmic {
        draw_on(file, picture.title, lines, tiers, (LEAST_S..most.max(10.0 * LEAST_S)).log_scale())
    } else {
        draw_on(file, picture.title, lines, tiers, 0.0..most.max(1.0))
    }
}

fn draw_on<Y>(
    file: &Path,
    title: &str,
    lines: &[Line],
    tiers: std::ops::Range<f64>,
    values: Y,
) -> Result<(), Box<dyn Error>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let area = SVGBackend::new(file, (800, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(tiers, values)?;
    chart
        .configure_mesh()
        .x_desc("sessions")
        .x_label_formatter(&|sessions| format!("{sessions:.0}"))
        .max_light_lines(0)
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let color = if line.measured { BLACK.to_rgba() } else { COLORS[index % COLORS.len()].to_rgba() };
        // What was measured last, the arm with the rule on, is filled.
        let dot = if line.name.starts_with("on") { color.filled() } else { color.stroke_width(1) };
        let drawn = if line.measured {
            chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 4, dot)))?
        } else {
            chart.draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?
        };
        let measured = line.measured;
        drawn.label(line.name.clone()).legend(move |(x, y)| {
            let (line, circle) = if measured { (x, 4) } else { (x + 18, 0) };
            EmptyElement::at((x, y))
                + PathElement::new(vec![(0, 0), (line - x, 0)], color.stroke_width(2))
                + Circle::new((9, 0), circle, dot)
        });
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    area.present()?;
    Ok(())
}
