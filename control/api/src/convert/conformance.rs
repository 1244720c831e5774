//! Conformance: groups, drift, changes, baselines, the brake.

use super::non_empty;
use crate::{
    nodes::{
        baseline::{
            BaselineComparisonView, BaselineRequest, BaselineResult, BaselineView, BrakeState,
            BrakeView, ClassExpectationBody, ClassRuleView, CohortSelectorBody, ReleaseRequest,
            VersionView,
        },
        conformance::{
            DriftReportView, DriftView, GroupView, GroupsView, NoMajorityView, NotReadView,
            UnknownView, ValueWithNodes,
        },
        history::{ChangesView, FleetChangeView},
    },
    v1,
};
use serde_json::{Value, json};

field_by_field! {
    GroupView => Group { class, digest, nodes, count, first_seen }
    DriftView => Drifted {
        node, class, key, expected, found, by, baseline, policy, sensitive, since,
        since_or_before, cohort, cohort_nodes, majority_nodes, as_of,
    }
    ValueWithNodes => ValueWithNodes { value, nodes }
    NotReadView => NotRead { nodes, why }
    UnknownView => UnknownClass { node, class, why, baseline }
    CohortSelectorBody => Cohort { vendor, product, gpu_model, gpu_count }
    VersionView => BaselineVersion { version, by, at }
    BrakeView => Brake { reason, since, by }
    BaselineComparisonView => BaselineComparison {
        compared, compared_count, conform, conform_count, differ, differ_count, unknown, unknown_count,
        drain, deprioritise, warnings,
    }
}

impl From<GroupsView> for v1::GroupsResponse {
    fn from(g: GroupsView) -> Self {
        Self {
            groups: g.groups.into_iter().map(Into::into).collect(),
            unknown: g.unknown,
            not_read: g.not_read.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<NoMajorityView> for v1::NoMajority {
    fn from(n: NoMajorityView) -> Self {
        Self {
            cohort: n.cohort,
            class: n.class,
            key: n.key,
            values: n.values.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<DriftReportView> for v1::DriftResponse {
    fn from(report: DriftReportView) -> Self {
        Self {
            drifted: report.drifted.into_iter().map(Into::into).collect(),
            no_majority: report.no_majority.into_iter().map(Into::into).collect(),
            unknown: report.unknown.into_iter().map(Into::into).collect(),
            without_reference: report.without_reference,
            brake: report.brake.map(Into::into),
            pending: report.pending,
        }
    }
}

impl From<FleetChangeView> for v1::FleetChange {
    fn from(c: FleetChangeView) -> Self {
        Self {
            class: c.class,
            change: Some(c.change.into()),
            verdict: c.verdict,
            nodes: c.nodes,
            count: c.count,
            causes: c.causes.into_iter().collect(),
            first: c.first,
            last: c.last,
        }
    }
}

impl From<ChangesView> for v1::ChangesResponse {
    fn from(c: ChangesView) -> Self {
        Self {
            since: c.since,
            changes: c.changes.into_iter().map(Into::into).collect(),
            new: c.new,
            left_out: c.left_out,
            reaches_back_to: c.reaches_back_to,
        }
    }
}

impl From<v1::Cohort> for CohortSelectorBody {
    fn from(c: v1::Cohort) -> Self {
        Self {
            vendor: c.vendor,
            product: c.product,
            gpu_model: c.gpu_model,
            gpu_count: c.gpu_count,
        }
    }
}

impl From<ClassRuleView> for v1::BaselineClass {
    fn from(c: ClassRuleView) -> Self {
        Self {
            kind: c.kind,
            policy: c.policy,
            sensitive: c.sensitive,
            digest: c.digest,
            schema: c.schema.map(Into::into),
            keys: c.keys.into_iter().collect(),
            unreadable: c.unreadable,
        }
    }
}

impl From<BaselineView> for v1::Baseline {
    fn from(b: BaselineView) -> Self {
        let classes = b.classes.into_iter();
        Self {
            name: b.name,
            version: b.version,
            description: b.description,
            nodes: b.nodes,
            cohort: b.cohort.map(Into::into),
            classes: classes.map(|(name, class)| (name, class.into())).collect(),
            by: b.by,
            at: b.at,
            bytes: b.bytes,
            compared: b.compared,
            compared_count: b.compared_count,
            differ: b.differ,
            unknown: b.unknown,
            versions: b.versions.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Vec<BaselineView>> for v1::ListBaselinesResponse {
    fn from(items: Vec<BaselineView>) -> Self {
        Self {
            items: items.into_iter().map(Into::into).collect(),
        }
    }
}

/// Converts a value to the form it has in a baseline file. A missing value becomes `null`, which the field rejects.
fn value(value: v1::KeyValue) -> Value {
    use v1::key_value::Value as Given;
    match value.value {
        None => Value::Null,
        Some(Given::Flag(flag)) => flag.into(),
        Some(Given::Number(number)) => number.into(),
        Some(Given::Text(text)) => text.into(),
        Some(Given::List(list)) => list.items.into(),
    }
}

impl From<v1::ClassRule> for ClassExpectationBody {
    fn from(rule: v1::ClassRule) -> Self {
        let key = |(key, rule): (String, v1::KeyRule)| {
            let any_of: Vec<Value> = rule.any_of.into_iter().map(value).collect();
            (key, json!({"any_of": any_of, "or_absent": rule.or_absent}))
        };
        Self {
            policy: rule.policy,
            sensitive: rule.sensitive,
            keys: rule
                .keys
                .map(|rules| rules.keys.into_iter().map(key).collect()),
        }
    }
}

impl From<v1::SetBaselineRequest> for BaselineRequest {
    fn from(r: v1::SetBaselineRequest) -> Self {
        let classes = r.classes.into_iter();
        Self {
            name: None,
            description: r.description,
            nodes: r.nodes,
            cohort: r.cohort.map(Into::into),
            from_node: r.from_node.and_then(non_empty),
            from_group: r.from_group.and_then(non_empty),
            policy: r.policy,
            sensitive: r.sensitive,
            classes: classes.map(|(name, rule)| (name, rule.into())).collect(),
            expected_version: r.expected_version,
        }
    }
}

impl From<BaselineResult> for v1::SetBaselineResponse {
    fn from(set: BaselineResult) -> Self {
        Self {
            name: set.name,
            version: set.version,
            classes: set.classes,
            revision: set.revision.0,
            dry_run: set.dry_run,
            comparison: Some(set.comparison.into()),
        }
    }
}

impl From<BrakeState> for v1::BrakeResponse {
    fn from(state: BrakeState) -> Self {
        Self {
            held: state.held.map(Into::into),
        }
    }
}

impl From<v1::ReleaseBrakeRequest> for ReleaseRequest {
    fn from(r: v1::ReleaseBrakeRequest) -> Self {
        Self { reason: r.reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_means_what_a_file_means_by_it() {
        use v1::key_value::Value as Given;
        let given = |value| v1::KeyValue { value: Some(value) };
        let list = v1::TextList {
            items: vec!["a".to_owned(), "b".to_owned()],
        };
        let any_of = vec![
            given(Given::Flag(true)),
            given(Given::Number(9)),
            given(Given::Text("28.41".to_owned())),
            given(Given::List(list)),
            v1::KeyValue { value: None },
        ];
        let rule = v1::KeyRule {
            any_of,
            or_absent: true,
        };
        let keys = v1::KeyRules {
            keys: [("nic.*.firmware".to_owned(), rule)].into(),
        };
        let form = ClassExpectationBody::from(v1::ClassRule {
            policy: Some("drain".to_owned()),
            sensitive: None,
            keys: Some(keys),
        });
        let wanted = json!({"policy": "drain", "keys": {"nic.*.firmware": {
            "any_of": [true, 9, "28.41", ["a", "b"], null], "or_absent": true}}});
        assert_eq!(serde_json::to_value(&form).ok(), Some(wanted));
        assert_eq!(
            ClassExpectationBody::from(v1::ClassRule::default()).keys,
            None
        );
    }
}
