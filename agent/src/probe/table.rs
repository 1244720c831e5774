//! Table output of `probe`, 100 columns wide.
//!
//! Names and values come from firmware and devices. Unsafe characters are escaped in each cell: the widths are those
//! that the terminal shows, and a line feed in a text begins no line of its own.

use super::health::Health;
use super::source::LEFT_OUT;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use lattice_conformance::{
    Class, ClassRecord, ClassState, Fingerprint, Inventory, Power, Reading, ReadingState, Value,
};
use lattice_host::terminal::{printable, printable_lines};
use std::fmt::Write;

const COLUMNS: u16 = 100;
/// Maximum number of missing keys that are listed by name.
const MAX_MISSING_LISTED: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Classes and faults.
    Summary,
    /// Additionally every key with its value.
    EveryKey,
}

pub(super) fn render(inventory: &Inventory, health: &Health, detail: Detail) -> String {
    let mut text = heading(inventory, health);
    let _ = writeln!(text, "\n{}", classes(inventory));
    section(&mut text, "Missing", &missing(inventory));
    section(&mut text, "Denied", &denied(inventory));
    let lost = inventory.probes.iter().filter_map(|p| p.why.clone());
    section(&mut text, "Probes", &lost.collect::<Vec<_>>());
    let findings = inventory.findings.iter();
    let findings = findings.map(|f| format!("{} ({}): {}", f.code, f.class, f.detail));
    section(&mut text, "Findings", &findings.collect::<Vec<_>>());
    let checks = health.checks.iter().map(|c| {
        let watched = if c.observe_only {
            " (observe-only)"
        } else {
            ""
        };
        format!("{} {}: {}{watched}", c.entity, c.code, c.evidence)
    });
    section(&mut text, "Checks", &checks.collect::<Vec<_>>());
    if detail == Detail::EveryKey {
        text.push_str("\n* a class is incomplete without this key\n");
        for (class, record) in &inventory.records {
            if !record.entries.is_empty() && record.disabled.is_none() {
                let _ = writeln!(text, "\n{class}\n{}", keys(record));
            }
        }
    }
    text
}

fn heading(inventory: &Inventory, health: &Health) -> String {
    let identity = &inventory.identity;
    let asked = requested_classes(inventory);
    let hostname = match (&identity.hostname, &asked) {
        (Reading::Disabled { .. }, Some(_)) => "not requested".to_owned(),
        (hostname, _) => hostname.to_string(),
    };
    let mut rows = vec![("node", hostname)];
    let machine = [&identity.vendor, &identity.product];
    let machine: Vec<&str> = machine
        .into_iter()
        .filter_map(|part| part.present().map(String::as_str))
        .collect();
    match machine[..] {
        [] => {}
        // Some product names begin with the vendor.
        [vendor, product] if product.starts_with(vendor) => {
            rows.push(("machine", product.to_owned()));
        }
        _ => rows.push(("machine", machine.join(" "))),
    }
    rows.push(("gpus", gpus(inventory)));
    rows.push(("power", power(inventory.power.as_ref(), asked.is_some())));
    rows.push(("fingerprint", fingerprint(inventory)));
    let reasons = match health.reasons.is_empty() {
        true => String::new(),
        false => format!(": {}", health.reasons.join(", ")),
    };
    let of = match &asked {
        Some(asked) => format!(", only {} probed", list(asked)),
        None => gpus_not_probed_note(inventory),
    };
    rows.push(("health", format!("{}{of}{reasons}", health.verdict)));
    let mut table = bare();
    for (name, value) in rows {
        table.add_row([name.to_owned(), printable_lines(&value).into_owned()]);
    }
    format!("{}\n", trimmed(&table))
}

fn list(classes: &[Class]) -> String {
    let names: Vec<&str> = classes.iter().map(|class| class.name()).collect();
    names.join(", ")
}

/// Requested classes; `None` unless the command line left some out.
fn requested_classes(inventory: &Inventory) -> Option<Vec<Class>> {
    let is_left_out = |record: &ClassRecord| record.disabled.as_deref() == Some(LEFT_OUT);
    let records = inventory.records.iter();
    let asked: Vec<Class> = records
        .filter(|(_, record)| !is_left_out(record))
        .map(|(class, _)| *class)
        .collect();
    (asked.len() < inventory.records.len()).then_some(asked)
}

/// Note for the verdict line if the GPUs were not probed.
fn gpus_not_probed_note(inventory: &Inventory) -> String {
    let gpus = inventory.records.get(&Class::Gpu);
    match gpus.and_then(|record| record.disabled.as_deref()) {
        Some(why) => format!(", GPUs not probed ({why})"),
        None => String::new(),
    }
}

fn gpus(inventory: &Inventory) -> String {
    match (
        &inventory.resources.gpu_count,
        &inventory.resources.gpu_model,
    ) {
        (Reading::Absent, _) => "none".to_owned(),
        (Reading::Present(count), model) => format!("{count} x {model}"),
        (unknown, _) => unknown.to_string(),
    }
}

fn power(power: Option<&Power>, some_left_out: bool) -> String {
    let Some(power) = power else {
        let why = match some_left_out {
            true => "not probed: classes are left out on the command line",
            false => "unknown: no source on this node measures it",
        };
        return why.to_owned();
    };
    let limit = match &power.limit {
        Reading::Present(limit) => format!("limit {limit}"),
        _ => format!("limit {}", power.limit_state),
    };
    let source = match power.source.is_empty() {
        true => String::new(),
        false => format!(" ({})", power.source),
    };
    format!("{}, {limit}{source}", power.draw)
}

fn fingerprint(inventory: &Inventory) -> String {
    match inventory.fingerprint() {
        Fingerprint::Complete { digest, classes } => format!("{digest}\nof {}", list(&classes)),
        Fingerprint::Unknown { incomplete } => {
            format!("unknown while incomplete: {}", list(&incomplete))
        }
        Fingerprint::Empty => "none: no class was probed".to_owned(),
    }
}

fn classes(inventory: &Inventory) -> String {
    let mut table = bare();
    table.set_header([
        "CLASS", "STATE", "DIGEST", "KEYS", "UNKNOWN", "TOOK", "NOTE",
    ]);
    for (class, record) in &inventory.records {
        let (state, digest, note) = match record.state() {
            ClassState::Complete { digest, .. } => ("complete", digest.short(), String::new()),
            ClassState::Incomplete { missing } => {
                let note = match missing.len() {
                    1 => "1 required key missing".to_owned(),
                    count => format!("{count} required keys missing"),
                };
                ("incomplete", "-".to_owned(), note)
            }
            ClassState::Disabled { why } => ("disabled", "-".to_owned(), why),
        };
        let probes = inventory.probes.iter().filter(|p| p.class == *class);
        let took_us: u64 = probes.map(|probe| probe.duration_us).sum();
        let entries = match record.disabled {
            Some(_) => 0,
            None => record.entries.len(),
        };
        let unknown = record.entries.values().filter(|r| !r.is_known()).count();
        table.add_row([
            class.to_string(),
            state.to_owned(),
            digest,
            entries.to_string(),
            unknown.min(entries).to_string(),
            format!("{:.1} ms", took_us as f64 / 1000.0),
            printable(&note).into_owned(),
        ]);
    }
    trimmed(&table)
}

/// Missing keys of each incomplete class.
fn missing(inventory: &Inventory) -> Vec<String> {
    let mut lines = Vec::new();
    for record in inventory.records.values() {
        let ClassState::Incomplete { missing } = record.state() else {
            continue;
        };
        let rest = missing.len().saturating_sub(MAX_MISSING_LISTED);
        for (key, reading) in missing.iter().take(MAX_MISSING_LISTED) {
            lines.push(format!("{key}: {}", unbracketed(reading)));
        }
        if rest > 0 {
            lines.push(format!("and {rest} more of {}", record.class));
        }
    }
    lines
}

/// Keys that only root may read, one line per class.
fn denied(inventory: &Inventory) -> Vec<String> {
    let mut lines = Vec::new();
    for record in inventory.records.values() {
        let entries = record.entries.iter();
        let keys: Vec<&str> = entries
            .filter(|(_, reading)| reading.state() == ReadingState::Denied)
            .map(|(key, _)| key.as_str())
            .collect();
        if let Some(first) = keys.first() {
            let rest = match keys.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            lines.push(format!(
                "{}: {first}{rest}; root may read them",
                record.class
            ));
        }
    }
    lines
}

fn keys(record: &ClassRecord) -> String {
    let mut table = bare();
    for (key, reading) in &record.entries {
        let is_required = record.required.contains(key);
        let mark = if is_required { "*" } else { "" };
        table.add_row([
            printable(&format!("  {key}{mark}")),
            printable(&reading.to_string()),
        ]);
    }
    trimmed(&table)
}

fn unbracketed(reading: &Reading<Value>) -> String {
    let shown = reading.to_string();
    let inner = shown.strip_prefix('<').and_then(|s| s.strip_suffix('>'));
    inner.unwrap_or(&shown).to_owned()
}

fn section(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let mut table = bare();
    for line in lines {
        table.add_row([printable(&format!("  {line}"))]);
    }
    let _ = writeln!(text, "\n{title}\n{}", trimmed(&table));
}

fn bare() -> Table {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(COLUMNS);
    table
}

/// Removes the blanks that pad the last column.
fn trimmed(table: &Table) -> String {
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}
