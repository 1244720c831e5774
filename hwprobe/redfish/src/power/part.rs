//! Parts of a node: readings of one part are not those of the node.

use crate::walk::string;
use serde_json::Value;

/// Whether a control or a power reading concerns a part of the node, by its context or its name.
pub(super) fn concerns_part(value: &Value) -> bool {
    const PARTS: &[&str] = &[
        "accelerator",
        "gpu",
        "cpu",
        "processor",
        "memory",
        "dimm",
        "fan",
        "drive",
        "storage",
        "networking",
        "pcie",
    ];
    let context = string(value, "PhysicalContext").unwrap_or_default();
    let id = string(value, "Id").unwrap_or_default();
    let name = string(value, "Name").unwrap_or_default();
    [context, id, name].iter().any(|text| {
        let lower = text.to_ascii_lowercase();
        PARTS.iter().any(|part| lower.contains(part)) || begins_word(text, "asic")
    })
}

/// Whether a word of `text` begins with `part`, which is in lower case: matches `ASIC 0` and `MainASIC`, but not
/// `Basic`.
fn begins_word(text: &str, part: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let bytes = text.as_bytes();
    let begins = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        before.is_none_or(|before| {
            let is_capital = bytes.get(at).is_some_and(u8::is_ascii_uppercase);
            !before.is_ascii_alphabetic() || before.is_ascii_lowercase() && is_capital
        })
    };
    lower.match_indices(part).any(|(at, _)| begins(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_is_named_by_a_word_and_not_by_letters_in_one() {
        for name in [
            "ASIC 0",
            "MainASIC",
            "node_asic",
            "asic",
            "GPU_3",
            "Fan1",
            "CPUPower",
        ] {
            assert!(concerns_part(&json!({"Name": name})), "{name}");
        }
        for name in ["Basic Power Control", "BASIC", "Server Power Control", ""] {
            assert!(!concerns_part(&json!({"Name": name})), "{name}");
        }
    }
}
