//! Matching of GPU model names: drivers report "NVIDIA H100 80GB HBM3", users request "h100", and Slurm names the type
//! "nvidia_h100_80gb_hbm3".

/// Requested model names; any one may match.
#[derive(Debug)]
pub(crate) struct GpuModels(Vec<String>);

impl GpuModels {
    pub(crate) fn new(wanted: &[String]) -> Self {
        Self(wanted.iter().map(|word| fold(word)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the model's name contains a requested name, ignoring case and with `_` for a blank. A match must begin at the start of a word and
    /// must not end inside a number: "L4" does not match an L40S, and "H200" does not match a GH200.
    pub(crate) fn matches(&self, model: &str) -> bool {
        let model = fold(model);
        self.0.iter().any(|wanted| is_in(wanted, &model))
    }
}

/// Converts a name to lower case, with blanks for `_`.
fn fold(name: &str) -> String {
    name.to_lowercase().replace('_', " ")
}

fn is_in(wanted: &str, model: &str) -> bool {
    let starts_in_word = wanted.starts_with(char::is_alphanumeric);
    let ends_in_number = wanted.ends_with(char::is_numeric);
    model.match_indices(wanted).any(|(at, found)| {
        let (before, after) = (&model[..at], &model[at + found.len()..]);
        let is_cut_before = starts_in_word && before.ends_with(char::is_alphanumeric);
        let is_cut_after = ends_in_number && after.starts_with(char::is_numeric);
        !is_cut_before && !is_cut_after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_by_its_number_and_not_by_a_part_of_it() {
        for (wanted, model, is_it) in [
            ("h100", "NVIDIA H100 80GB HBM3", true),
            ("H100 80gb", "NVIDIA H100 80GB HBM3", true),
            ("A100", "NVIDIA A100-SXM4-40GB", true),
            ("sxm4-40GB", "NVIDIA A100-SXM4-40GB", true),
            ("MI300", "AMD Instinct MI300X", true),
            ("V100M16", "V100M16", true),
            ("A10", "NVIDIA A10G", true),
            ("A10", "NVIDIA A100-SXM4-40GB", false),
            ("L4", "NVIDIA L40S", false),
            ("H20", "NVIDIA H200", false),
            ("H200", "NVIDIA GH200 480GB", false),
            ("100", "NVIDIA H100 80GB HBM3", false),
            ("4", "Tesla T4 rev 4", true),
            ("B200", "NVIDIA GB200, B200", true),
            ("-40GB", "NVIDIA A100-SXM4-40GB", true),
            // Types of Slurm's autodetection.
            ("nvidia_h100_80gb_hbm3", "NVIDIA H100 80GB HBM3", true),
            ("nvidia_a100-sxm4-40gb", "NVIDIA A100-SXM4-40GB", true),
            ("nvidia_h100_80gb", "NVIDIA H100 80GB HBM3", true),
            ("nvidia_h100", "NVIDIA H1000", false),
        ] {
            let is_match = GpuModels::new(&[wanted.to_owned()]).matches(model);
            assert_eq!(is_match, is_it, "{wanted} of {model}");
        }
        let either = GpuModels::new(&["V100M16".to_owned(), "V100M32".to_owned()]);
        assert!(either.matches("V100M32") && !either.matches("V100"));
    }
}
