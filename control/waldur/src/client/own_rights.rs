//! Rights of the token's user, read from Waldur before any of them is needed.

use super::{ObjectParameters, Right, WaldurClient, WaldurError, offerings::OFFERINGS};
use serde_json::Value;
use std::collections::BTreeMap;

/// Roles that may do what no permission opens.
const OWNER: &str = "CUSTOMER.OWNER";
const MANAGER: &str = "CUSTOMER.MANAGER";

/// Fields of the own user that are read. Without this list, Waldur also sends the token.
const USER_FIELDS: [(&str, &str); 2] = [("field", "is_staff"), ("field", "permissions")];

/// Roles of the token's user, as Waldur shows them.
#[derive(Debug, Default)]
pub(super) struct OwnRoles {
    is_staff: bool,
    /// Name, UUID and scope of each role.
    roles: Vec<OwnRole>,
    /// Permissions by the UUID of a role.
    permissions: BTreeMap<String, Vec<String>>,
}

#[derive(Debug)]
struct OwnRole {
    name: String,
    uuid: String,
    /// UUID of the customer, project or offering.
    scope: String,
}

impl OwnRoles {
    fn of(user: &Value, roles: &[Value]) -> Self {
        let own = user["permissions"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let permissions = roles.iter().filter_map(|role| {
            let of_role = role["permissions"].as_array()?.iter();
            let of_role = of_role.filter_map(Value::as_str).map(str::to_owned);
            Some((hex(&role["uuid"])?, of_role.collect()))
        });
        Self {
            is_staff: user["is_staff"] == true,
            roles: own.iter().filter_map(OwnRole::of).collect(),
            permissions: permissions.collect(),
        }
    }

    fn at<'a>(&'a self, scope: &'a str) -> impl Iterator<Item = &'a OwnRole> {
        self.roles.iter().filter(move |role| role.scope == scope)
    }

    fn permits(&self, permission: &str, scope: &str) -> bool {
        let mut of_scope = self
            .at(scope)
            .filter_map(|role| self.permissions.get(&role.uuid));
        of_scope.any(|permissions| permissions.iter().any(|one| one == permission))
    }

    fn is_any_of(&self, names: &[&str], scope: &str) -> bool {
        self.at(scope)
            .any(|role| names.contains(&role.name.as_str()))
    }

    /// Whether the user has a right at the customer `provider`, or at its `offering` where that is enough.
    pub(super) fn has(&self, right: Right, provider: &str, offering: Option<&str>) -> bool {
        let is_permitted = |scope: &str| {
            let permission = right.permission();
            permission.is_none_or(|permission| self.permits(permission, scope))
        };
        self.is_staff
            || match right {
                Right::SetUsage | Right::SetBackendId => {
                    is_permitted(provider) || offering.is_some_and(is_permitted)
                }
                Right::SetAllocationState => self.is_any_of(&[OWNER, MANAGER], provider),
                Right::EndResources => is_permitted(provider) && self.is_any_of(&[OWNER], provider),
                _ => is_permitted(provider),
            }
    }
}

impl OwnRole {
    fn of(role: &Value) -> Option<Self> {
        Some(Self {
            name: role["role_name"].as_str()?.to_owned(),
            uuid: hex(&role["role_uuid"])?,
            scope: hex(&role["scope_uuid"])?,
        })
    }
}

/// A UUID without dashes.
fn hex(uuid: &Value) -> Option<String> {
    Some(uuid.as_str()?.replace('-', ""))
}

impl WaldurClient {
    /// Roles of the token's user; `None` where Waldur does not show them.
    pub(super) async fn own_roles(&self) -> Result<Option<OwnRoles>, WaldurError> {
        let read = async {
            let user = self.get("users/me/", &USER_FIELDS).await?;
            Ok::<_, WaldurError>((user, self.list("roles/", &[]).await?))
        };
        match read.await {
            Ok((user, roles)) => Ok(Some(OwnRoles::of(&user, &roles))),
            Err(WaldurError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Rights of a provider that the token's user lacks, each with the vClusters of the offerings that need it; without
    /// vClusters for a cluster that creates its offerings. `None` where Waldur does not show the roles of the user.
    ///
    /// The rights at the customers of tenants are not known before an order needs them.
    ///
    /// # Errors
    /// Returns a [`WaldurError`].
    pub async fn missing_rights(
        &self,
        parameters: &ObjectParameters<'_>,
    ) -> Result<Option<BTreeMap<Right, Vec<String>>>, WaldurError> {
        let Some(roles) = self.own_roles().await? else {
            return Ok(None);
        };
        let mut missing: BTreeMap<Right, Vec<String>> = BTreeMap::new();
        for (vcluster, offering) in parameters.offerings {
            let path = format!("{OFFERINGS}{offering}/");
            let lacks = match self.get(&path, &[("field", "customer_uuid")]).await {
                Ok(found) => {
                    let provider = hex(&found["customer_uuid"]).unwrap_or_default();
                    let lacks =
                        |right: &Right| !roles.has(*right, &provider, Some(offering.as_str()));
                    Right::OF_PROVIDER.into_iter().filter(lacks).collect()
                }
                Err(WaldurError::Refused { status: 404, .. }) => vec![Right::SeeProvider],
                Err(error) => return Err(error),
            };
            for right in lacks {
                let places = missing.entry(right).or_default();
                places.push(format!("vCluster {vcluster}"));
            }
        }
        if parameters.offerings.is_empty() {
            let lacks = self.missing_for_offerings(parameters, &roles).await?;
            missing.extend(lacks.into_iter().map(|right| (right, Vec::new())));
        }
        Ok(Some(missing))
    }

    /// Rights that the user lacks to create the offerings of a cluster, and to provide them.
    async fn missing_for_offerings(
        &self,
        parameters: &ObjectParameters<'_>,
        roles: &OwnRoles,
    ) -> Result<Vec<Right>, WaldurError> {
        if roles.is_staff {
            return Ok(Vec::new());
        }
        let Some(provider) = parameters.provider else {
            return Ok(vec![Right::CreateCustomers]);
        };
        if roles.at(provider).next().is_none() {
            return Ok(vec![Right::SeeProvider]);
        }
        let mut lacks: Vec<Right> = Right::OF_PROVIDER
            .into_iter()
            .chain([Right::CreateOfferings])
            .filter(|right| !roles.has(*right, provider, None))
            .collect();
        let backend_id = format!("lattice:vcluster:{}:", parameters.cluster);
        let of_provider = [("customer_uuid", provider)];
        let offerings = self.list(OFFERINGS, &of_provider).await?;
        let is_own = |one: &Value| {
            let id = one["backend_id"].as_str();
            id.is_some_and(|id| id.starts_with(&backend_id)) && one["state"] != "Draft"
        };
        // An offering that is created stays a draft until staff activates it.
        if !offerings.iter().any(is_own) {
            lacks.push(Right::ActivateOfferings);
        }
        Ok(lacks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SITE: &str = "5f0e0f0a0b0c0d0e0f101112131415aa";
    const OFFERING: &str = "6f0e0f0a0b0c0d0e0f101112131415aa";
    const ROLE: &str = "7f0e0f0a0b0c0d0e0f101112131415aa";

    fn roles(name: &str, scope: &str, permissions: &[&str]) -> OwnRoles {
        let user = json!({"is_staff": false, "permissions": [
            {"role_name": name, "role_uuid": ROLE, "scope_uuid": scope},
        ]});
        OwnRoles::of(&user, &[json!({"uuid": ROLE, "permissions": permissions})])
    }

    fn lacks(roles: &OwnRoles) -> Vec<Right> {
        let lacks = |right: &Right| !roles.has(*right, SITE, Some(OFFERING));
        Right::OF_PROVIDER.into_iter().filter(lacks).collect()
    }

    #[test]
    fn rights_follow_from_roles_and_their_permissions() {
        let all = [
            "RESOURCE.SET_USAGE",
            "ORDER.APPROVE",
            "ORDER.REJECT",
            "RESOURCE.SET_BACKEND_ID",
            "RESOURCE.TERMINATE",
        ];
        assert_eq!(lacks(&roles(OWNER, SITE, &all)), []);
        // The same permissions in a role of the deployment.
        assert_eq!(
            lacks(&roles("LATTICE", SITE, &all)),
            [Right::SetAllocationState, Right::EndResources]
        );
        // A role on the offering alone, with the UUID written with dashes.
        let dashed = "6f0e0f0a-0b0c-0d0e-0f10-1112131415aa";
        assert_eq!(
            lacks(&roles("OFFERING.MANAGER", dashed, &all)),
            [
                Right::ApproveOrders,
                Right::RejectOrders,
                Right::SetAllocationState,
                Right::EndResources
            ]
        );
        assert_eq!(lacks(&roles(OWNER, "other", &all)), Right::OF_PROVIDER);
        let staff = OwnRoles {
            is_staff: true,
            ..OwnRoles::default()
        };
        assert_eq!(lacks(&staff), []);
    }

    #[test]
    fn replies_of_other_types_grant_nothing() {
        for user in [
            json!(null),
            json!({"is_staff": "true", "permissions": 3}),
            json!({"is_staff": null, "permissions": [null, 7, {"role_name": 1}, {}]}),
        ] {
            let roles = OwnRoles::of(&user, &[json!(null), json!({"uuid": 3, "permissions": {}})]);
            assert_eq!(lacks(&roles), Right::OF_PROVIDER, "{user}");
        }
    }
}
