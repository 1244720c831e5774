//! Reservations: nodes that are kept for some for a time.

use crate::{Client, ClientError, projects::with_key};
use lattice_api::{
    project::Changed,
    reservation::{ReservationRequest, ReservationView},
};
use reqwest::Method;

impl Client {
    /// All reservations by name, those to come too.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reservations(&self) -> Result<Vec<ReservationView>, ClientError> {
        self.all(&["reservations"], &[]).await
    }

    /// One reservation.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reservation(&self, name: &str) -> Result<ReservationView, ClientError> {
        self.get(&["reservations", name]).await
    }

    /// Makes a reservation, or changes the whole of it. For operators.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] when it has another revision than the one expected.
    pub async fn set_reservation(
        &self,
        name: &str,
        request: &ReservationRequest,
        key: Option<&str>,
    ) -> Result<ReservationView, ClientError> {
        let put = self.request(Method::PUT, &["reservations", name]);
        self.answer(with_key(put.json(request), key)).await
    }

    /// Nothing is kept under this name any more. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_reservation(
        &self,
        name: &str,
        key: Option<&str>,
    ) -> Result<Changed, ClientError> {
        let delete = self.request(Method::DELETE, &["reservations", name]);
        self.answer(with_key(delete, key)).await
    }
}
