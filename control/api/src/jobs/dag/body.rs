//! DAG members in a request.

use super::AllocationRequest;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor},
};
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeMap, fmt};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{ObjectBuilder, Schema, Type},
    },
};

/// Dependency on another member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EdgeBody {
    /// Member that must end first.
    pub member: String,
    /// Required end of that member: `success` (when left out), `failure`, `any` or `corresponding`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

/// Dependencies of a member, in one of three forms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "it must be a list of members' names, of {member, condition}, or names by condition as {success: \
                 [a, b]}"
)]
pub enum AfterBody {
    /// Names of members that must succeed.
    Names(Vec<String>),
    /// Members, each with its condition.
    Edges(Vec<EdgeBody>),
    /// Member names by condition: `{"success": ["a"], "failure": ["b"]}`.
    ByCondition(BTreeMap<String, Vec<String>>),
}

impl Default for AfterBody {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

impl AfterBody {
    fn is_empty(&self) -> bool {
        match self {
            Self::Names(names) => names.is_empty(),
            Self::Edges(edges) => edges.is_empty(),
            Self::ByCondition(by) => by.is_empty(),
        }
    }
}

/// DAG member: a request for nodes with a name, and its dependencies in the DAG.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MemberRequest {
    /// Members that must end first.
    #[serde(skip_serializing_if = "AfterBody::is_empty")]
    pub after: AfterBody,
    /// Request for nodes, with the member name as name. Dependencies in the request are on allocations outside the DAG.
    #[serde(flatten)]
    pub request: AllocationRequest,
}

/// Rejects unknown fields, which serde cannot do for a flattened struct.
impl<'de> Deserialize<'de> for MemberRequest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let UniqueFields(mut fields) = UniqueFields::deserialize(from)?;
        let after = fields.remove("after").filter(|after| !after.is_null());
        let after = after.map(AfterBody::deserialize).transpose();
        let request = AllocationRequest::deserialize(&Value::Object(fields.clone()));
        let request = request.map_err(|error| match unreadable_field(&fields) {
            Some(field) => format!("{field}: {error}"),
            None => error.to_string(),
        });
        Ok(Self {
            after: after
                .map_err(|error| D::Error::custom(format!("after: {error}")))?
                .unwrap_or_default(),
            request: request.map_err(D::Error::custom)?,
        })
    }
}

/// JSON object without duplicate fields: of two equal fields, serde would silently use the last one.
struct UniqueFields(Map<String, Value>);

impl<'de> Deserialize<'de> for UniqueFields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = UniqueFields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueFields, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("duplicate field `{name}`")));
                    }
                    fields.insert(name, value);
                }
                Ok(UniqueFields(fields))
            }
        }
        from.deserialize_map(Fields)
    }
}

/// Returns the first field with an unreadable value; `None` if the only error is a missing or unknown field, which the
/// error names itself.
fn unreadable_field(fields: &Map<String, Value>) -> Option<&str> {
    let mut alone = Map::new();
    alone.insert("project".to_owned(), Value::from("a"));
    alone.insert("nodes".to_owned(), Value::from(1));
    let is_wrong = |(field, value): &(&String, &Value)| {
        let mut alone = alone.clone();
        alone.insert((*field).clone(), (*value).clone());
        let error = AllocationRequest::deserialize(Value::Object(alone)).err();
        error.is_some_and(|error| !error.to_string().starts_with("unknown field"))
    };
    fields
        .iter()
        .find(is_wrong)
        .map(|(field, _)| field.as_str())
}

impl PartialSchema for MemberRequest {
    fn schema() -> RefOr<Schema> {
        let mut schema = AllocationRequest::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            let text = "Member of a graph: a request for nodes with a name and dependencies.";
            object.description = Some(text.to_owned());
            let name = ObjectBuilder::new()
                .schema_type(Type::String)
                .description(Some("Name by which other members refer to this member."))
                .min_length(Some(1));
            let properties = &mut object.properties;
            properties.insert("name".to_owned(), RefOr::T(Schema::Object(name.build())));
            properties.insert("after".to_owned(), AfterBody::schema());
            object.required.push("name".to_owned());
        }
        schema
    }
}

impl ToSchema for MemberRequest {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("MemberRequest")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        AllocationRequest::schemas(schemas);
        AfterBody::schemas(schemas);
    }
}
