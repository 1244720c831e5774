//! Observations as a table.

use super::watch::{LivenessObservation, longest_silence};
use serde_json::{Value as Json, json};
use std::{collections::BTreeSet, time::Duration};

/// One node during the faults.
pub struct Row {
    node: &'static str,
    fault: &'static str,
    liveness: String,
    answers: usize,
    silence_s: f64,
    health: String,
    reasons: String,
    class: String,
    gpus: String,
    power: String,
    known_s: Option<f64>,
    back_s: Option<f64>,
    /// Reason why a sensitive job waited for the node.
    waited: Option<String>,
}

fn distinct<T: Into<String>>(all: impl Iterator<Item = T>) -> Vec<String> {
    let all: BTreeSet<String> = all.map(Into::into).collect();
    all.into_iter().collect()
}

impl Row {
    /// Values of the last observation; liveness and gossip over all observations.
    pub fn of(
        node: &'static str,
        fault: &'static str,
        class: Option<&str>,
        looks: &[LivenessObservation],
    ) -> Self {
        let of = |look: &LivenessObservation| look.nodes[node].clone();
        let last = of(looks.last().unwrap());
        let state = |class| format!("{class} {}", last.classes[class].state);
        let incomplete = last
            .classes
            .values()
            .filter(|class| class.state != "complete");
        let class = match (class, incomplete.count()) {
            (Some(class), _) => state(class),
            (None, 0) => "all complete".to_owned(),
            (None, n) => format!("{n} incomplete"),
        };
        let power = match &last.power {
            None => "unread".to_owned(),
            Some(power) => match power.draw_watts {
                Some(watts) => format!("{watts} W"),
                None => power.draw_state.clone(),
            },
        };
        Self {
            node,
            fault,
            liveness: distinct(looks.iter().map(|look| of(look).liveness)).join(" "),
            answers: distinct(looks.iter().filter_map(|look| of(look).last_seen)).len(),
            silence_s: longest_silence(node, looks).as_secs_f64(),
            health: last.health.verdict.clone(),
            reasons: last.health.reasons.join(" "),
            class,
            gpus: last
                .resources
                .gpu_count
                .map_or("unknown".to_owned(), |n| n.to_string()),
            power,
            known_s: None,
            back_s: None,
            waited: None,
        }
    }

    pub fn took(mut self, known: Duration, back: Duration) -> Self {
        (self.known_s, self.back_s) = (Some(known.as_secs_f64()), Some(back.as_secs_f64()));
        self
    }

    pub fn waited(mut self, why: Option<String>) -> Self {
        self.waited = why;
        self
    }

    fn json(&self) -> Json {
        json!({
            "node": self.node, "fault": self.fault, "liveness": self.liveness,
            "pings_answered": self.answers, "longest_gossip_silence_s": self.silence_s, "health": self.health,
            "reasons": self.reasons, "class": self.class, "gpus": self.gpus, "power": self.power,
            "known_after_s": self.known_s, "back_after_s": self.back_s,
            "sensitive_work_waited": self.waited,
        })
    }

    fn cells(&self) -> [String; 12] {
        let seconds = |time: Option<f64>| time.map_or("-".to_owned(), |s| format!("{s:.1}"));
        [
            self.node.to_owned(),
            self.fault.to_owned(),
            self.liveness.clone(),
            self.answers.to_string(),
            format!("{:.1}", self.silence_s),
            self.health.clone(),
            self.reasons.clone(),
            self.class.clone(),
            self.gpus.clone(),
            self.power.clone(),
            seconds(self.known_s),
            seconds(self.back_s),
        ]
    }
}

const NAMES: [&str; 12] = [
    "node",
    "fault",
    "liveness",
    "pings",
    "unheard s",
    "health",
    "reasons",
    "class",
    "GPUs",
    "power",
    "known s",
    "back s",
];

pub fn print(rows: &[Row]) {
    if std::env::var("LATTICE_OUTPUT").is_ok_and(|format| format == "json") {
        let rows: Vec<Json> = rows.iter().map(Row::json).collect();
        println!("{}", json!({ "nodes": rows }));
        return;
    }
    let mut lines = vec![NAMES.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 12] = std::array::from_fn(width);
    for line in lines {
        let cells = line.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        println!("{}", cells.join("  ").trim_end());
    }
    for row in rows {
        if let Some(why) = &row.waited {
            println!("{}: sensitive work waited: {why}", row.node);
        }
    }
}
