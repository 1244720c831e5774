//! Names of array elements, which stay known for some time after the array has ended.

use lattice_quorum_types::{Allocation, AllocationId, array::ArraySpec, progress::ArrayElement};
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of arrays with known names. One more displaces the array with the lowest number.
const MAX_ARRAYS: usize = 4_096;

/// Indices of the most recent job arrays, also of those that have ended. Texts name the elements of ended arrays too: in
/// the reason of a stop, or for a process that is left on a node.
#[derive(Debug, Clone, Default)]
pub struct ArrayNames(BTreeMap<AllocationId, Arc<ArraySpec>>);

impl ArrayNames {
    /// Whether the names of an array are known.
    pub(super) fn has(&self, array: AllocationId) -> bool {
        self.0.contains_key(&array)
    }

    /// Adds an array. A record that is not an array changes nothing.
    pub(super) fn add(&mut self, record: &Allocation) {
        let Some(array) = &record.spec.terms.array else {
            return;
        };
        self.0.insert(record.id, Arc::new(array.clone()));
        while self.0.len() > MAX_ARRAYS {
            self.0.pop_first();
        }
    }

    /// Place of an element in its array; `None` for a number that belongs to no known array.
    pub(super) fn element(&self, number: AllocationId) -> Option<ArrayElement> {
        let (array, spec) = self.0.range(..number).next_back()?;
        let index = spec.numbers(*array).index_of(number)?;
        Some(ArrayElement {
            array: *array,
            index,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::BaseView;
    use lattice_quorum_types::{
        AllocationState, ProjectPath, Revision, UnixMillis, VclusterName,
        spec::{AllocationSpec, Workload},
    };

    fn array(id: u64, state: AllocationState) -> Allocation {
        let (path, vcluster) = (ProjectPath::new("t"), VclusterName::new("main"));
        let mut spec =
            AllocationSpec::new(path.unwrap(), vcluster.unwrap(), 1, Workload::default());
        spec.terms.array = Some("50-52:2".parse().unwrap());
        Allocation {
            id: AllocationId(id),
            user: "alice".to_owned(),
            spec,
            state,
            state_since: UnixMillis(0),
            submitted_at: UnixMillis(0),
            eligible_at: UnixMillis(0),
            started_at: None,
            ended_at: None,
            attempt: 0,
            ranks: Vec::new(),
            stop: None,
            revision: Revision(1),
            progress: Default::default(),
        }
    }

    #[test]
    fn elements_of_an_ended_array_keep_their_names() {
        let mut view = BaseView::<crate::NodeEntry>::default();
        view.set_allocation(array(7, AllocationState::Pending));
        view.set_allocation(array(7, AllocationState::Completed));
        let name = |number| view.name_of(AllocationId(number)).to_string();
        let names = [7, 8, 9, 10].map(name);
        assert_eq!(names, ["7", "7_50", "7_52", "10"]);
        let known = [7, 8, 9, 10].map(|number| view.has_name_of(AllocationId(number)));
        assert_eq!(known, [false, true, true, false]);
    }

    #[test]
    fn number_of_known_arrays_is_bounded() {
        let mut names = ArrayNames::default();
        for number in 0..=MAX_ARRAYS as u64 {
            names.add(&array(1 + 3 * number, AllocationState::Pending));
        }
        assert_eq!(names.element(AllocationId(2)), None);
        assert_eq!(
            names.element(AllocationId(5)).unwrap().array,
            AllocationId(4)
        );
        assert_eq!(names.0.len(), MAX_ARRAYS);
    }
}
