//! GPUs of a job in an export of sacct.

use super::{GRES, NODES, Row, TRES, count, resources};
use lattice_quorum_types::spec::Constraints;

/// GPUs in one column.
#[derive(Debug, Default, PartialEq, Eq)]
struct Gpus {
    /// Number of GPUs on all nodes, or on each node.
    count: u64,
    is_per_node: bool,
    models: Vec<String>,
}

/// Reads GPUs per node and GPU models, from text such as
/// `billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=1T,node=2`, or `gpu:a100:8` of older releases.
///
/// # Errors
/// A count that is not a number; the text names column and resource.
pub(super) fn constraints(row: &Row<'_>) -> Result<Constraints, String> {
    let tres = TRES.map(|column| (column, gpus_of_tres as fn(&str, &str) -> _));
    let gres = GRES.map(|column| (column, gpus_of_gres as fn(&str, &str) -> _));
    for (column, read) in tres.into_iter().chain(gres) {
        let Some(text) = row.get(column) else {
            continue;
        };
        let gpus: Gpus = read(column, text)?;
        if gpus.count == 0 {
            continue;
        }
        let nodes = match row.resource("node")? {
            None => row.count(&NODES)?,
            found => found,
        };
        let per_node = match gpus.is_per_node {
            true => gpus.count,
            false => gpus.count.div_ceil(nodes.map_or(1, |nodes| nodes.value)),
        };
        let too_many = |_| {
            format!(
                "{column}: {per_node} GPUs per node are more than {}",
                u32::MAX
            )
        };
        return Ok(Constraints {
            gpus_per_node: Some(u32::try_from(per_node).map_err(too_many)?),
            gpu_models: gpus.models,
            ..Constraints::default()
        });
    }
    Ok(Constraints::default())
}

/// Number of GPUs: the total, or the sum over models where a site records GPUs only by model
/// (`AccountingStorageTRES=gres/gpu:a100`).
fn gpus_of_tres(column: &str, text: &str) -> Result<Gpus, String> {
    let (mut total, mut of_models, mut models) = (0, 0_u64, Vec::new());
    for (name, value) in resources(text) {
        let model = match name.strip_prefix("gres/gpu") {
            Some("") => None,
            // Other resources begin with the same letters: gres/gpumem, gres/gpuutil.
            Some(rest) if rest.starts_with(':') => Some(&rest[1..]),
            _ => continue,
        };
        let not_a_count = || count::not_a_count(&format!("{column}: {name}"), value);
        let count = count::read(value).ok_or_else(not_a_count)?.value;
        match model {
            None => total = count,
            Some(model) if count > 0 => {
                of_models = of_models.saturating_add(count);
                models.push(model.to_owned());
            }
            Some(_) => {}
        }
    }
    Ok(Gpus {
        count: of_models.max(total),
        is_per_node: false,
        models,
    })
}

/// Number by which Slurm identifies GPUs where it has no name for them: the bytes of `gpu`, lowest first.
const GPU_ID: &str = "7696487";

/// Number of GPUs in a list such as `gpu:a100:8,nvme:1`: the sum over all nodes, as Slurm records it, or the request for
/// each node (`PER_NODE:gpu:4`). A GPU without a count is one, and the places in parentheses (`gpu:2(IDX:0-1)`) do not
/// count. Requests for each task or socket are not read: the export does not have the number of these.
fn gpus_of_gres(column: &str, text: &str) -> Result<Gpus, String> {
    let mut gpus = Gpus::default();
    let listed = without_places(text);
    for part in listed.split(',').map(str::trim) {
        let (part, is_per_node) = match part.strip_prefix("PER_NODE:") {
            Some(part) => (part, true),
            None => (part.strip_prefix("PER_JOB:").unwrap_or(part), false),
        };
        let name = part.strip_prefix("gres:").or(part.strip_prefix("gres/"));
        let mut words = name.unwrap_or(part).split([':', '=']);
        if !words
            .next()
            .is_some_and(|word| word == "gpu" || word == GPU_ID)
        {
            continue;
        }
        let (model, count) = match (words.next(), words.next()) {
            (None, _) => (None, 1),
            (Some(word), None) => match count::read(word) {
                Some(count) => (None, count.value),
                None => (Some(word), 1),
            },
            (Some(model), Some(word)) => {
                let not_a_count = || count::not_a_count(&format!("{column}: gpu:{model}"), word);
                (
                    Some(model),
                    count::read(word).ok_or_else(not_a_count)?.value,
                )
            }
        };
        if count > 0 {
            gpus.count = gpus.count.saturating_add(count);
            gpus.is_per_node = is_per_node;
            gpus.models.extend(model.map(str::to_owned));
        }
    }
    Ok(gpus)
}

/// The text without the parts in parentheses.
fn without_places(text: &str) -> String {
    let mut depth = 0_usize;
    let mut kept = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_resources_are_read_in_every_form() {
        for (text, count, is_per_node, models) in [
            ("gpu:8", 8, false, ""),
            ("gpu:a100:8", 8, false, "a100"),
            ("gpu:a100:4,gpu:h100:4,nvme:1", 8, false, "a100 h100"),
            ("craynetwork:1,gpu:1K", 1024, false, ""),
            ("gpu", 1, false, ""),
            ("gpu:a100", 1, false, "a100"),
            ("gpu:1g.5gb:2", 2, false, "1g.5gb"),
            ("gpu:a100:2(IDX:0,3),nvme:1(IDX:0)", 2, false, "a100"),
            ("gres:gpu:a100:4", 4, false, "a100"),
            ("gres/gpu=8", 8, false, ""),
            ("7696487:8", 8, false, ""),
            ("PER_NODE:gpu:a100:4", 4, true, "a100"),
            ("PER_JOB:gpu:4", 4, false, ""),
            ("PER_TASK:gpu:1", 0, false, ""),
            ("gpu:0", 0, false, ""),
            ("gpu:a100:0", 0, false, ""),
            ("gpumem:80G,nvme:4,7696488:8", 0, false, ""),
            ("", 0, false, ""),
        ] {
            let models = models.split_whitespace().map(str::to_owned).collect();
            let gpus = Gpus {
                count,
                is_per_node,
                models,
            };
            assert_eq!(gpus_of_gres("AllocGRES", text), Ok(gpus), "{text}");
        }
        assert_eq!(
            gpus_of_gres("ReqGRES", "gpu:a100:many").err().as_deref(),
            Some("ReqGRES: gpu:a100: \"many\" is not a count such as 1500, 2K or 1.50K")
        );
    }
}
