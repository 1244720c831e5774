//! Methods and message kinds that an endpoint answers, for checks of the caller roles.

use crate::{Mesh, Role, ServedMethod};

impl Mesh {
    /// Methods that this endpoint serves at present, sorted by name, for checks of the caller roles. Built-in methods
    /// (`mesh.hello`, `mesh.leave`) are not included.
    pub fn served(&self) -> Vec<ServedMethod> {
        let router = self.core().router.get();
        let methods = router.into_iter().flat_map(|router| &router.methods);
        let mut served: Vec<ServedMethod> = methods
            .map(|(&method, entry)| ServedMethod {
                method,
                callers: entry.callers,
            })
            .collect();
        served.sort();
        served
    }

    /// Message kinds that this endpoint accepts, each with the roles that may send it.
    pub fn accepted_messages(&self) -> Vec<(u16, &'static [Role])> {
        let router = self.core().router.get();
        let kinds = router.into_iter().flat_map(|router| &router.messages);
        let mut taken: Vec<_> = kinds.map(|(&kind, entry)| (kind, entry.callers)).collect();
        taken.sort();
        taken
    }
}
