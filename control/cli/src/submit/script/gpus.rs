//! GPU options of Slurm, translated to GPUs per node.

use super::values::{Job, SubmitFlag, Translation};

/// Model, if one is named, and number of GPUs.
type Gpus<'a> = (Option<&'a str>, u32);

fn words((model, count): Gpus<'_>) -> Vec<SubmitFlag> {
    // Zero GPUs: no request, and no GPUs are hidden from the job.
    if count == 0 {
        return Vec::new();
    }
    let count = SubmitFlag::new("gpus-per-node", count.to_string());
    let model = model.map(|model| SubmitFlag::new("gpu-model", model));
    [count].into_iter().chain(model).collect()
}

/// Reads `4` or `a100:4`.
fn parse_gpu_count(text: &str) -> Result<Gpus<'_>, String> {
    if text.contains(',') {
        return Err(format!(
            "{text:?}: GPUs of several models together are not supported; name one model"
        ));
    }
    let (model, count) = match text.rsplit_once(':') {
        Some((model, count)) => (Some(model), count),
        None => (None, text),
    };
    let wrong = || format!("{text:?} is not a valid number of GPUs; write it like 4, or a100:4");
    if model.is_some_and(|model| model.is_empty() || model.contains(':')) {
        return Err(wrong());
    }
    Ok((model, count.parse().map_err(|_| wrong())?))
}

pub(super) fn per_node(_: &Job<'_>, text: &str) -> Translation {
    parse_gpu_count(text).map(words)
}

/// Reads `none`, `gpu`, `gpu:4`, `gpu:a100` or `gpu:a100:4`.
pub(super) fn gres(_: &Job<'_>, text: &str) -> Translation {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    let mut items = text.split(',');
    let of_gpus = |item: &&str| *item == "gpu" || item.starts_with("gpu:");
    if let Some(other) = items.clone().find(|item| !of_gpus(item)) {
        return Err(format!(
            "{other:?}: GPUs are the only such resource here; write it like gpu:4 or gpu:a100:4"
        ));
    }
    let gpus = items.next().unwrap_or_default();
    if items.next().is_some() {
        return Err(format!(
            "{text:?}: GPUs of several models together are not supported; name one model"
        ));
    }
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    match gpus.strip_prefix("gpu:") {
        None => Ok(words((None, 1))),
        Some("") => Err(format!("{text:?}: write it like gpu:4 or gpu:a100:4")),
        Some(model) if !model.contains(':') && !is_number(model) => Ok(words((Some(model), 1))),
        Some(counted_gpus) => parse_gpu_count(counted_gpus).map(words),
    }
}

/// Reads the number of GPUs of all nodes together; each node gets the same number.
pub(super) fn total_gpus(job: &Job<'_>, text: &str) -> Translation {
    let (model, count) = parse_gpu_count(text)?;
    let nodes = job.node_count;
    match count.is_multiple_of(nodes.max(1)) {
        true => Ok(words((model, count / nodes.max(1)))),
        false => Err(format!(
            "{count} GPUs on {nodes} nodes: each node needs the same number; write --gpus-per-node"
        )),
    }
}
