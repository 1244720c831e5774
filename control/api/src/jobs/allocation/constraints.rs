//! Node constraints of an allocation.

use super::{field_error, keyword, name_of};
use crate::problem::FieldError;
use lattice_quorum_types::{
    NodeId, hostlist,
    spec::{Constraints, Spread},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// Node constraints; a field left out means "any".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstraintsBody {
    /// Acceptable GPU models, any one of them, by words of the driver's name, ignoring case: `h100`; `A10` matches no
    /// A100. One text may name several: `V100M16|V100M32`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<String>,
    /// Minimum number of GPUs per node. On a node with more GPUs the job gets exactly this number, those that are
    /// connected best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_per_node: Option<u32>,
    /// Minimum memory per node, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Features that every node must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Allowed nodes, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "gpu[001-064]")]
    pub nodelist: Option<String>,
    /// Excluded nodes, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<String>,
    /// Layout over topology groups: `tight` (default), `spread` or `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<String>,
}

fn nodes(text: Option<&str>, field: &'static str) -> Result<Vec<NodeId>, FieldError> {
    match text {
        None => Ok(Vec::new()),
        Some(list) => hostlist::expand(list).map_err(field_error(field)),
    }
}

/// Reads the node list and the excluded nodes. Rejects as a mistake a node that is listed twice, and a node list
/// without any node that is not excluded.
fn node_lists(body: &ConstraintsBody) -> Result<(Vec<NodeId>, Vec<NodeId>), FieldError> {
    let field = "constraints.nodelist";
    let nodelist = match body.nodelist.as_deref() {
        None => Vec::new(),
        Some(list) => hostlist::expand_distinct(list).map_err(field_error(field))?,
    };
    let exclude = nodes(body.exclude.as_deref(), "constraints.exclude")?;
    let excluded: BTreeSet<&NodeId> = exclude.iter().collect();
    if !nodelist.is_empty() && nodelist.iter().all(|node| excluded.contains(node)) {
        let reason = "it excludes every node of constraints.nodelist; leave one of them in";
        return Err(field_error("constraints.exclude")(reason));
    }
    Ok((nodelist, exclude))
}

const SPREADS: [(&str, Spread); 3] = [
    ("tight", Spread::Tight),
    ("spread", Spread::Spread),
    ("any", Spread::Any),
];

/// Splits texts that name several alternatives: `V100M16|V100M32`.
fn alternatives(texts: &[String], field: &str) -> Result<Vec<String>, FieldError> {
    let named = texts.iter().flat_map(|text| text.split('|')).map(str::trim);
    let all: Vec<String> = named.map(str::to_owned).collect();
    match all.iter().any(String::is_empty) {
        false => Ok(all),
        // An empty text is part of every name and would match every model.
        true => Err(FieldError {
            field: field.to_owned(),
            reason: "one of them is empty; write them like V100M16|V100M32".to_owned(),
        }),
    }
}

impl TryFrom<ConstraintsBody> for Constraints {
    type Error = FieldError;
    fn try_from(body: ConstraintsBody) -> Result<Self, FieldError> {
        let (nodelist, exclude) = node_lists(&body)?;
        Ok(Self {
            gpu_models: alternatives(&body.gpu_models, "constraints.gpu_models")?,
            gpus_per_node: body.gpus_per_node,
            memory_bytes: body.memory_bytes,
            features: body.features,
            nodelist,
            exclude,
            spread: keyword(body.spread.as_deref(), "constraints.spread", &SPREADS)?
                .unwrap_or_default(),
        })
    }
}

impl From<&Constraints> for ConstraintsBody {
    fn from(c: &Constraints) -> Self {
        let list = |nodes: &[NodeId]| (!nodes.is_empty()).then(|| hostlist::fold(nodes));
        Self {
            gpu_models: c.gpu_models.clone(),
            gpus_per_node: c.gpus_per_node,
            memory_bytes: c.memory_bytes,
            features: c.features.clone(),
            nodelist: list(&c.nodelist),
            exclude: list(&c.exclude),
            spread: (c.spread != Spread::default())
                .then(|| name_of(&SPREADS, &c.spread).to_owned()),
        }
    }
}
