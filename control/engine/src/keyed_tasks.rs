//! Tasks that each work on one item. A task that panics returns the key of its item, so that only this item is
//! repeated.

use std::{collections::HashMap, fmt, future::Future};
use tokio::task::{Id, JoinError, JoinSet};

/// Tasks under way; dropping them aborts them.
pub(crate) struct KeyedTasks<K, T> {
    tasks: JoinSet<T>,
    keys: HashMap<Id, K>,
}

impl<K, T> fmt::Debug for KeyedTasks<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedTasks({} under way)", self.keys.len())
    }
}

/// A task that panicked, which is a bug in control.
#[derive(Debug)]
pub(crate) struct PanickedTask<K> {
    /// Item of the task.
    pub(crate) key: K,
    /// Cause of the failure.
    pub(crate) error: JoinError,
}

impl<K, T: Send + 'static> KeyedTasks<K, T> {
    /// No tasks.
    pub(crate) fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            keys: HashMap::new(),
        }
    }

    /// Starts a task for the item `key`.
    pub(crate) fn spawn(&mut self, key: K, task: impl Future<Output = T> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.keys.insert(id, key);
    }

    /// Number of tasks that have not been joined.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the result of the next task that ends; `None` without tasks. Cancel safe.
    pub(crate) async fn join_next(&mut self) -> Option<Result<T, PanickedTask<K>>> {
        loop {
            let joined = self.tasks.join_next_with_id().await?;
            if let Some(result) = self.result(joined) {
                return Some(result);
            }
        }
    }

    /// Returns the result of a task that has ended; `None` if there is none.
    pub(crate) fn try_join_next(&mut self) -> Option<Result<T, PanickedTask<K>>> {
        loop {
            let joined = self.tasks.try_join_next_with_id()?;
            if let Some(result) = self.result(joined) {
                return Some(result);
            }
        }
    }

    /// Result of a joined task, without its entry in `keys`. Every task has an entry.
    fn result(&mut self, joined: Result<(Id, T), JoinError>) -> Option<Result<T, PanickedTask<K>>> {
        match joined {
            Ok((id, result)) => {
                self.keys.remove(&id);
                Some(Ok(result))
            }
            Err(error) => {
                let key = self.keys.remove(&error.id())?;
                Some(Err(PanickedTask { key, error }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn panicked_task_returns_its_key_alone() {
        let mut tasks = KeyedTasks::new();
        tasks.spawn("a", async { 1 });
        tasks.spawn("b", async { panic!("a bug") });
        tasks.spawn("c", async { 3 });
        let (mut results, mut panicked) = (Vec::new(), Vec::new());
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(result) => results.push(result),
                Err(PanickedTask { key, error }) => {
                    assert!(error.is_panic());
                    panicked.push(key);
                }
            }
        }
        results.sort_unstable();
        assert_eq!((results, panicked), (vec![1, 3], vec!["b"]));
        assert_eq!((tasks.len(), tasks.keys.len()), (0, 0));

        tasks.spawn("d", async { panic!("a bug") });
        let ended = loop {
            tokio::task::yield_now().await;
            if let Some(ended) = tasks.try_join_next() {
                break ended;
            }
        };
        assert_eq!(ended.unwrap_err().key, "d");
        assert!(tasks.try_join_next().is_none());
    }
}
