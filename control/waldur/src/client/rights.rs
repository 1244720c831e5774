//! Rights in Waldur that the token's user needs, and the request that needs each.
//!
//! Waldur answers with 403 without naming the permission. Each kind of request needs one right, so the path of a
//! rejected request implies the name.

use std::fmt;

/// Right of the token's user in Waldur.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Any role at the provider: without one, its offerings and resources are hidden.
    SeeProvider,
    /// Reports of usage.
    SetUsage,
    /// Reports of usage for ended months, in Waldur 8.
    BookEndedMonths,
    /// Approval of orders, and the steps after it, as the provider.
    ApproveOrders,
    /// Refusal of orders as the provider.
    RejectOrders,
    /// Ids of resources.
    SetBackendId,
    /// State of the allocation behind a resource of type `Marketplace.Slurm`.
    SetAllocationState,
    /// End of resources without an approval of their customer.
    EndResources,
    /// Approval of an own order as the customer.
    OrderForCustomers,
    /// New projects of a customer.
    CreateProjects,
    /// New customers.
    CreateCustomers,
    /// New offerings.
    CreateOfferings,
    /// New service providers.
    RegisterProvider,
    /// New categories of offerings.
    CreateCategories,
    /// Activation of offerings.
    ActivateOfferings,
}

/// Call by which staff gives the token's user a role at the provider.
const GRANT_AT_PROVIDER: &str = "as staff, `POST /api/customers/PROVIDER/add_user/` with `{\"user\": UUID, \
     \"role\": \"CUSTOMER.OWNER\"}` for the token's user, or add the permission to the role of that user";
/// Call by which staff gives the token's user a role at a customer.
const GRANT_AT_CUSTOMER: &str = "as staff, `POST /api/customers/CUSTOMER/add_user/` with `{\"user\": UUID, \
     \"role\": \"CUSTOMER.OWNER\"}` for the token's user, at the customer of the tenant";

impl Right {
    /// Rights that the provider needs for reports, and for orders of customers.
    pub const OF_PROVIDER: [Self; 6] = [
        Self::SetUsage,
        Self::ApproveOrders,
        Self::RejectOrders,
        Self::SetBackendId,
        Self::SetAllocationState,
        Self::EndResources,
    ];

    /// Right that a POST request needs; `None` for a path that needs none of these.
    pub(super) fn of_post(path: &str) -> Option<Self> {
        let mut parts = path.trim_end_matches('/').split('/');
        Some(match (parts.next()?, parts.next(), parts.next()) {
            ("marketplace-component-usages", Some("set_usage"), None) => Self::SetUsage,
            ("marketplace-orders", Some(_), Some(step)) => match step {
                "approve_by_consumer" => Self::OrderForCustomers,
                "reject_by_provider" => Self::RejectOrders,
                _ => Self::ApproveOrders,
            },
            ("marketplace-provider-resources", Some(_), Some("set_backend_id")) => {
                Self::SetBackendId
            }
            ("marketplace-provider-resources", Some(_), Some("terminate")) => Self::EndResources,
            ("marketplace-slurm-remote", Some(_), Some(_)) => Self::SetAllocationState,
            ("marketplace-provider-offerings", None, None) => Self::CreateOfferings,
            ("marketplace-provider-offerings", Some(_), Some("activate")) => {
                Self::ActivateOfferings
            }
            ("marketplace-service-providers", None, None) => Self::RegisterProvider,
            ("marketplace-categories", None, None) => Self::CreateCategories,
            ("projects", None, None) => Self::CreateProjects,
            ("customers", None, None) => Self::CreateCustomers,
            _ => return None,
        })
    }

    /// Name of the permission or role, as Waldur's administrators know it, and where it is granted.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SeeProvider => "a role on the provider's customer",
            Self::SetUsage => "RESOURCE.SET_USAGE on the provider's customer or the offering",
            Self::BookEndedMonths => "staff, for usage of ended months",
            Self::ApproveOrders => "ORDER.APPROVE on the provider's customer",
            Self::RejectOrders => "ORDER.REJECT on the provider's customer",
            Self::SetBackendId => {
                "RESOURCE.SET_BACKEND_ID on the provider's customer or the offering"
            }
            Self::SetAllocationState => {
                "the role CUSTOMER.OWNER or CUSTOMER.MANAGER on the provider's customer"
            }
            Self::EndResources => {
                "RESOURCE.TERMINATE and the role CUSTOMER.OWNER on the provider's customer"
            }
            Self::OrderForCustomers => "ORDER.APPROVE on the tenant's customer",
            Self::CreateProjects => "PROJECT.CREATE on the tenant's customer",
            Self::CreateCustomers => "staff, or a role on the existing customer",
            Self::CreateOfferings => "OFFERING.CREATE on the provider's customer",
            Self::RegisterProvider => "SERVICE_PROVIDER.REGISTER on the provider's customer",
            Self::CreateCategories => "staff, for a new category",
            Self::ActivateOfferings => "staff, for the activation of an offering",
        }
    }

    /// Permission that a role has to have, as in `GET /api/roles/`; `None` where a role by name or staff is needed.
    pub const fn permission(self) -> Option<&'static str> {
        match self {
            Self::SetUsage => Some("RESOURCE.SET_USAGE"),
            Self::ApproveOrders | Self::OrderForCustomers => Some("ORDER.APPROVE"),
            Self::RejectOrders => Some("ORDER.REJECT"),
            Self::SetBackendId => Some("RESOURCE.SET_BACKEND_ID"),
            Self::EndResources => Some("RESOURCE.TERMINATE"),
            Self::CreateProjects => Some("PROJECT.CREATE"),
            Self::CreateOfferings => Some("OFFERING.CREATE"),
            Self::RegisterProvider => Some("SERVICE_PROVIDER.REGISTER"),
            Self::SeeProvider
            | Self::BookEndedMonths
            | Self::SetAllocationState
            | Self::CreateCustomers
            | Self::CreateCategories
            | Self::ActivateOfferings => None,
        }
    }

    /// What does not work without the right.
    pub const fn effect(self) -> &'static str {
        match self {
            Self::SeeProvider => "offerings and resources are hidden, and no usage is reported",
            Self::SetUsage => "no usage is reported",
            Self::BookEndedMonths => "the rest of ended months is not reported",
            Self::ApproveOrders => "orders are not accepted, and new resources stay in Creating",
            Self::RejectOrders => "orders are not refused",
            Self::SetBackendId => "resources get no id, and their usage is not reported",
            Self::SetAllocationState => "new limits of Marketplace.Slurm resources do not apply",
            Self::EndResources => "resources of deleted projects do not end",
            Self::OrderForCustomers => "no resource is ordered, and the usage is not reported",
            Self::CreateProjects => "missing projects are not created, nor ordered resources for",
            Self::CreateCustomers => "missing customers are not created, nor projects of them",
            Self::CreateOfferings | Self::RegisterProvider | Self::CreateCategories => {
                "missing offerings are not created, and the usage is not reported"
            }
            Self::ActivateOfferings => "the offering stays a draft, which takes no orders",
        }
    }

    /// Step by which an administrator of Waldur grants the right, or makes it unnecessary.
    pub const fn next_step(self) -> &'static str {
        match self {
            Self::SeeProvider
            | Self::SetUsage
            | Self::ApproveOrders
            | Self::RejectOrders
            | Self::SetBackendId
            | Self::SetAllocationState
            | Self::EndResources => GRANT_AT_PROVIDER,
            Self::OrderForCustomers | Self::CreateProjects => GRANT_AT_CUSTOMER,
            Self::BookEndedMonths => {
                "correct the invoices in Waldur, then run `lattice admin accounting reconcile --accept` for the month"
            }
            Self::CreateCustomers => {
                "as staff, create the customer with the `backend_id` `lattice:tenant:TENANT`, and make the token's \
                 user its CUSTOMER.OWNER: `POST /api/customers/CUSTOMER/add_user/`"
            }
            Self::CreateOfferings => {
                "give the UUIDs of existing offerings in `accounting.waldur.offerings`, or make the token's user \
                 CUSTOMER.OWNER of `accounting.waldur.provider_customer`"
            }
            Self::RegisterProvider => {
                "as staff, `POST /api/marketplace-service-providers/` with the provider's customer"
            }
            Self::CreateCategories => {
                "as staff, `POST /api/marketplace-categories/` with the title in `accounting.waldur.category`"
            }
            Self::ActivateOfferings => {
                "as staff, `POST /api/marketplace-provider-offerings/OFFERING/activate/`"
            }
        }
    }

    /// Whether the right is granted at the customer of a tenant, and not at the provider.
    pub const fn is_of_tenant(self) -> bool {
        matches!(
            self,
            Self::OrderForCustomers | Self::CreateProjects | Self::CreateCustomers
        )
    }

    /// Whether a new resource needs the right.
    pub const fn is_for_new_resources(self) -> bool {
        !matches!(
            self,
            Self::SetUsage
                | Self::BookEndedMonths
                | Self::RejectOrders
                | Self::SetAllocationState
                | Self::EndResources
        )
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_request_implies_its_right() {
        for (path, right) in [
            (
                "marketplace-component-usages/set_usage/",
                Some(Right::SetUsage),
            ),
            (
                "marketplace-orders/0a/approve_by_provider/",
                Some(Right::ApproveOrders),
            ),
            (
                "marketplace-orders/0a/set_state_done/",
                Some(Right::ApproveOrders),
            ),
            (
                "marketplace-orders/0a/reject_by_provider/",
                Some(Right::RejectOrders),
            ),
            (
                "marketplace-provider-resources/0a/terminate/",
                Some(Right::EndResources),
            ),
            (
                "marketplace-slurm-remote/0a/set_state/",
                Some(Right::SetAllocationState),
            ),
            ("customers/", Some(Right::CreateCustomers)),
            // An order that needs an approval of its customer waits; the order itself needs no permission.
            ("marketplace-orders/", None),
            ("customers/0a/", None),
            ("", None),
        ] {
            assert_eq!(Right::of_post(path), right, "{path}");
        }
    }
}
