//! GPUs of a job in an export of sacct.

use super::{NODES, Row, TRES, count, resources};
use lattice_quorum_types::spec::Constraints;

/// GPUs in one column.
struct Gpus {
    total: u64,
    models: Vec<String>,
}

/// Reads GPUs per node and GPU models, from text such as
/// `billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=1T,node=2`.
///
/// # Errors
/// A count that is not a number; the text names column and resource.
pub(super) fn constraints(row: &Row<'_>) -> Result<Constraints, String> {
    for column in TRES {
        let Some(text) = row.get(column) else {
            continue;
        };
        let Gpus { total, models } = gpus(column, text)?;
        if total == 0 {
            continue;
        }
        let nodes = match row.resource("node")? {
            None => row.count(&NODES)?,
            found => found,
        };
        let per_node = total.div_ceil(nodes.map_or(1, |nodes| nodes.value));
        let too_many = |_| {
            format!(
                "{column}: {per_node} GPUs per node are more than {}",
                u32::MAX
            )
        };
        return Ok(Constraints {
            gpus_per_node: Some(u32::try_from(per_node).map_err(too_many)?),
            gpu_models: models,
            ..Constraints::default()
        });
    }
    Ok(Constraints::default())
}

/// Number of GPUs: the total, or the sum over models where a site records GPUs only by model
/// (`AccountingStorageTRES=gres/gpu:a100`).
fn gpus(column: &str, text: &str) -> Result<Gpus, String> {
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
        total: of_models.max(total),
        models,
    })
}
