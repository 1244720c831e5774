//! Charts as SVG: axes with round numbers, lines, bars and boxes. The SVG needs no script, font or other resource.

use std::fmt::Write as _;

/// Colors that color-blind readers can distinguish (Okabe and Ito, 2008).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// Color of the n-th series.
pub(super) fn colour(n: usize) -> &'static str {
    COLOURS[n % COLOURS.len()]
}

/// Escapes text for HTML and SVG.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
}

/// One axis of a chart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis<'a> {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) is_log: bool,
    pub(super) title: &'a str,
}

impl<'a> Axis<'a> {
    pub(super) fn linear(from: f64, to: f64, title: &'a str) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self {
            from,
            to,
            is_log: false,
            title,
        }
    }

    pub(super) fn log(from: f64, to: f64, title: &'a str) -> Self {
        let to = if to > from { to } else { from * 10.0 };
        Self {
            from,
            to,
            is_log: true,
            title,
        }
    }

    /// Relative position of a value, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let part = match self.is_log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        part.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = self.from.log10().ceil() as i32..=self.to.log10().floor() as i32;
            return decades.map(|power| 10_f64.powi(power)).collect();
        }
        let rough = (self.to - self.from) / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|times| times * power)
            .into_iter()
            .find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// Short form of a number.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        a if a >= 1e9 => format!("{:.3e}", value),
        a if a >= 1e4 => format!("{:.0}", value),
        a if a >= 100.0 || value == value.trunc() => format!("{:.0}", value),
        a if a >= 1.0 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

/// Label of a tick, with a suffix for large numbers, such as 400k.
fn tick_label(value: f64) -> String {
    match value.abs() {
        a if a >= 1e6 => format!("{}M", number(value / 1e6)),
        a if a >= 1e4 => format!("{}k", number(value / 1e3)),
        _ => {
            let text = number(value);
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text,
            }
        }
    }
}

/// Chart under construction.
pub(super) struct Chart<'a> {
    x: Axis<'a>,
    y: Axis<'a>,
    height: f64,
    left: f64,
    body: String,
}

impl<'a> Chart<'a> {
    pub(super) fn new(x: Axis<'a>, y: Axis<'a>, height: f64) -> Self {
        Self {
            x,
            y,
            height,
            left: LEFT,
            body: String::new(),
        }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let (width, height) = (WIDTH - self.left - RIGHT, self.height - TOP - BOTTOM);
        (
            self.left + width * self.x.part(x),
            TOP + height * (1.0 - self.y.part(y)),
        )
    }

    /// Adds the n-th line of the chart. Earlier lines are wider, so that they stay visible below later ones.
    pub(super) fn line(&mut self, points: impl IntoIterator<Item = (f64, f64)>, n: usize) {
        let mut path = String::new();
        for (x, y) in points {
            let (x, y) = self.at(x, y);
            let step = if path.is_empty() { "M" } else { "L" };
            let _ = write!(path, "{step}{x:.1} {y:.1}");
        }
        let (colour, width) = (colour(n), (4.0 - n as f64).max(1.2));
        let _ = writeln!(
            self.body,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>"
        );
    }

    /// Adds a box between two corners, with a tooltip.
    pub(super) fn area(
        &mut self,
        (x0, y0): (f64, f64),
        (x1, y1): (f64, f64),
        colour: &str,
        title: &str,
    ) {
        let ((left, top), (right, bottom)) = (self.at(x0, y1), self.at(x1, y0));
        let (width, height) = ((right - left).max(0.4), (bottom - top).max(0.4));
        let title = escaped(title);
        let _ = writeln!(
            self.body,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\">\
             <title>{title}</title></rect>"
        );
    }

    /// Adds a label below the x axis, in place of numbers.
    pub(super) fn label(&mut self, x: f64, text: &str) {
        let (x, _) = self.at(x, self.y.from);
        let (y, text) = (self.height - BOTTOM + 16.0, escaped(text));
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>"
        );
    }

    /// Returns the SVG. `with_x` means that the x axis has numbers.
    pub(super) fn done(self, name: &str, with_x: bool) -> String {
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">\n",
            self.height,
            escaped(name)
        );
        let (bottom, right) = (self.height - BOTTOM, WIDTH - RIGHT);
        for tick in self.y.ticks() {
            let (_, y) = self.at(self.x.from, tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                self.left,
                self.left - 6.0,
                y + 4.0,
                tick_label(tick)
            );
        }
        if with_x {
            for tick in self.x.ticks() {
                let (x, _) = self.at(tick, self.y.from);
                let _ = writeln!(
                    svg,
                    "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
                     <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    bottom + 16.0,
                    tick_label(tick)
                );
            }
        }
        svg.push_str(&self.body);
        let middle = TOP + (bottom - TOP) / 2.0;
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{0}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <line class=\"axis\" x1=\"{0}\" x2=\"{0}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{1}\" y=\"{2}\" text-anchor=\"middle\">{3}</text>\
             <text transform=\"translate(14 {middle}) rotate(-90)\" text-anchor=\"middle\">{4}</text>\n</svg>",
            self.left,
            self.left + (right - self.left) / 2.0,
            self.height - 8.0,
            escaped(self.x.title),
            escaped(self.y.title)
        );
        svg
    }
}

/// Legend of the colors.
pub(super) fn legend(names: &[&str]) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for (n, name) in names.iter().enumerate() {
        let _ = write!(
            html,
            "<span><i style=\"background:{}\"></i>{}</span>",
            colour(n),
            escaped(name)
        );
    }
    html.push_str("</p>\n");
    html
}
