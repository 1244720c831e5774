//! Reservations: nodes that only certain users and projects may use in a time window.

use crate::{Client, ClientError, projects::with_key};
use lattice_api::{
    project::ChangeResult,
    reservation::{ReservationRequest, ReservationView},
};
use reqwest::Method;

impl Client {
    /// Returns all reservations by name, including future ones.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reservations(&self) -> Result<Vec<ReservationView>, ClientError> {
        self.all(&["reservations"], &[]).await
    }

    /// Returns one reservation.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reservation(&self, name: &str) -> Result<ReservationView, ClientError> {
        self.get(&["reservations", name]).await
    }

    /// Creates a reservation, or replaces it completely. For operators.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Refused`] if the reservation has another revision than the expected one.
    pub async fn set_reservation(
        &self,
        name: &str,
        request: &ReservationRequest,
        key: Option<&str>,
    ) -> Result<ReservationView, ClientError> {
        let put = self.request(Method::PUT, &["reservations", name]);
        self.answer(with_key(put.json(request), key)).await
    }

    /// Deletes a reservation. For operators.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_reservation(
        &self,
        name: &str,
        key: Option<&str>,
    ) -> Result<ChangeResult, ClientError> {
        let delete = self.request(Method::DELETE, &["reservations", name]);
        self.answer(with_key(delete, key)).await
    }
}
