//! Checks of a request's fields: empty texts, and all faults at once.

use super::{AllocationRequest, FieldError, RequestContext, field_error};
use crate::notation::begin;

fn empty(field: &'static str) -> FieldError {
    field_error(field)("the value is empty; give a value, or leave the field out")
}

impl AllocationRequest {
    /// Rejects texts that are given but empty. In a script an empty text usually comes from an unset variable; treating
    /// it as left out would silently drop a condition.
    pub(super) fn check_not_empty(&self) -> Result<(), FieldError> {
        self.empty_fields()
            .next()
            .map_or(Ok(()), |field| Err(empty(field)))
    }

    /// Returns the fields that are given and empty.
    fn empty_fields(&self) -> impl Iterator<Item = &'static str> + '_ {
        let checkpoint = self.checkpoint.as_ref();
        let scale = self.scale.as_ref();
        let texts = [
            ("name", self.name.as_deref()),
            ("vcluster", self.vcluster.as_deref()),
            ("working_dir", self.working_dir.as_deref()),
            ("walltime", self.walltime.as_deref()),
            ("constraints.nodelist", self.constraints.nodelist.as_deref()),
            ("constraints.exclude", self.constraints.exclude.as_deref()),
            ("constraints.spread", self.constraints.spread.as_deref()),
            ("requeue", self.requeue.as_deref()),
            ("checkpoint_time", self.checkpoint_time.as_deref()),
            ("array", self.array.as_deref()),
            ("dependency", self.dependency.as_deref()),
            ("mutex", self.mutex.as_deref()),
            ("begin", self.begin.as_deref()),
            ("deadline", self.deadline.as_deref()),
            (
                "checkpoint.trigger",
                checkpoint.and_then(|of| of.trigger.as_deref()),
            ),
            (
                "checkpoint.directory",
                checkpoint.and_then(|of| of.directory.as_deref()),
            ),
            (
                "scale.up_window",
                scale.and_then(|of| of.up_window.as_deref()),
            ),
            (
                "scale.down_window",
                scale.and_then(|of| of.down_window.as_deref()),
            ),
            (
                "scale.cooldown",
                scale.and_then(|of| of.cooldown.as_deref()),
            ),
            ("reservation", self.reservation.as_deref()),
            ("on_limit", self.on_limit.as_deref()),
        ];
        let features = self.constraints.features.iter();
        let features = features.map(|text| ("constraints.features", Some(text.as_str())));
        let empty = texts.into_iter().chain(features).filter(|(_, text)| {
            let text = text.map(str::trim);
            text.is_some_and(str::is_empty)
        });
        empty.map(|(field, _)| field)
    }

    /// Returns all faults that can be found without the server's clock and job arrays, one per field.
    pub fn faults(&self) -> Vec<FieldError> {
        let mut rest = self.clone();
        let mut faults = Vec::new();
        // Dependencies may name array elements, which only the server can resolve to numbers.
        match rest.empty_fields().find(|field| *field == "dependency") {
            Some(field) => faults.push(empty(field)),
            None => faults.extend(rest.dependency_refs().err()),
        }
        (rest.dependency, rest.dependencies) = (None, Vec::new());
        // Only the server has the cluster's clock, so begin and deadline are checked for syntax alone.
        for (field, text) in [("begin", &mut rest.begin), ("deadline", &mut rest.deadline)] {
            let text = text.take();
            let given = text.as_deref().map(str::trim);
            faults.extend(match given {
                Some("") => Some(empty(field)),
                given => given.and_then(|text| begin::check(text).err().map(field_error(field))),
            });
        }
        while let Err(fault) = rest.clone().into_spec_with(&RequestContext::default()) {
            let is_new = faults.iter().all(|known| known.field != fault.field);
            if !is_new {
                break;
            }
            let is_left_out = rest.reset_field(&fault.field);
            faults.push(fault);
            if !is_left_out {
                break;
            }
        }
        faults
    }

    /// Leaves out a field, or sets it to a valid value. Returns `false` if there is no such field.
    fn reset_field(&mut self, field: &str) -> bool {
        match field {
            "project" => "a".clone_into(&mut self.project),
            "nodes" => self.nodes = 1,
            field if field.starts_with("checkpoint.") => self.checkpoint = None,
            field if field.starts_with("scale.") => self.scale = None,
            "name" => self.name = None,
            "vcluster" => self.vcluster = None,
            "working_dir" => self.working_dir = None,
            "output" => self.output = None,
            "error" => self.error = None,
            "walltime" => self.walltime = None,
            "constraints.gpu_models" => self.constraints.gpu_models = Vec::new(),
            "constraints.features" => self.constraints.features = Vec::new(),
            "constraints.nodelist" => self.constraints.nodelist = None,
            "constraints.exclude" => self.constraints.exclude = None,
            "constraints.spread" => self.constraints.spread = None,
            "requeue" => self.requeue = None,
            "data_ready" => self.data_ready = None,
            "checkpoint_time" => self.checkpoint_time = None,
            "storage_gb_s" => self.storage_gb_s = Default::default(),
            "array" => self.array = None,
            "mutex" => self.mutex = None,
            "reservation" => self.reservation = None,
            "on_limit" => self.on_limit = None,
            "script" => self.script = None,
            _ => return false,
        }
        true
    }
}
