//! DAGs in the DOT language of Graphviz.

use super::GraphView;
use std::fmt::Write as _;

/// Media type of DOT.
pub const MEDIA_TYPE: &str = "text/vnd.graphviz";

/// Quotes a text. Names have no control characters.
fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Returns the fill colour of a state, if it has one.
fn colour(state: &str) -> Option<&'static str> {
    match state {
        "completed" => Some("palegreen"),
        "failed" => Some("salmon"),
        "cancelled" => Some("lightgrey"),
        "starting" | "running" | "checkpointing" | "stopping" => Some("lightblue"),
        _ => None,
    }
}

impl GraphView {
    /// Formats the graph: members with number and state, edges with any condition other than success.
    pub fn to_dot(&self) -> String {
        let name = match self.name.is_empty() {
            true => self.id.to_string(),
            false => self.name.clone(),
        };
        let mut dot = format!("digraph {} {{\n  node [shape=box];\n", quoted(&name));
        for node in &self.nodes {
            let state = node.state.as_deref().unwrap_or("not kept");
            let label = format!("{}\\n{} {state}", escaped(&node.name), node.allocation);
            let fill = colour(state).map_or_else(String::new, |colour| {
                format!(", style=filled, fillcolor={colour}")
            });
            let _ = writeln!(dot, "  {} [label=\"{label}\"{fill}];", quoted(&node.name));
        }
        for edge in &self.edges {
            let label = match edge.condition.as_str() {
                "success" => String::new(),
                other => format!(" [label={}]", quoted(other)),
            };
            let _ = writeln!(
                dot,
                "  {} -> {}{label};",
                quoted(&edge.from),
                quoted(&edge.to)
            );
        }
        dot.push_str("}\n");
        dot
    }
}
