//! Formats of names in the OpenAPI document. The parsers are in `lattice-quorum-types`: a test checks that they accept
//! every text that these formats permit.

use std::borrow::Cow;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

macro_rules! text {
    ($(#[doc = $doc:literal])* $name:ident, $pattern:literal, $longest:literal, $example:literal) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl $name {
            /// Regular expression for the whole text.
            pub const PATTERN: &str = $pattern;
            /// Maximum number of characters.
            pub const LONGEST: usize = $longest;
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let text = ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some(concat!($($doc),*).trim()))
                    .pattern(Some($pattern))
                    .min_length(Some(1))
                    .max_length(Some($longest))
                    .examples([$example]);
                RefOr::T(Schema::Object(text.build()))
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }
        }
    };
}

text!(
    /// Name of a node, tenant, vCluster, baseline or reservation.
    Name, "^[A-Za-z0-9][A-Za-z0-9._-]*$", 253, "lattice7"
);
text!(
    /// Name of a tenant, or path of a project in it. Slashes need no escaping in the path of a URL.
    ProjectPath, "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$", 4096, "atlas/physics"
);
text!(
    /// Allocation number, or array element: the array's number and an index.
    Element, "^[1-9][0-9]{0,17}(_(0|[1-9][0-9]{0,5}))?$", 25, "12_7"
);
text!(
    /// Prefix of a hash, as lists show it.
    Digits, "^[0-9a-f]{8,64}$", 64, "3f2a9c01"
);
text!(
    /// User name at the site.
    Person, "^[^\\u0000-\\u001f\\u007f-\\u009f]+$", 253, "alice"
);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::{Element, Name, ProjectPath};
    use crate::{
        AllocationRequest,
        jobs::dependency::JobRef,
        nodes::claim::ClaimRequest,
        tenancy::{
            project::{LimitChangeBody, ProjectRequest},
            tenant::TenantRequest,
            vcluster::VclusterNodesRequest,
        },
    };
    use lattice_quorum_types::{NodeId, ProjectPath as Path};
    use proptest::{prelude::*, string::string_regex};
    use utoipa::PartialSchema as _;

    /// Fields of requests repeat the patterns, since an inline schema type would drop the description of the field.
    #[test]
    fn fields_of_requests_look_the_same() {
        let schemas = [
            ("project", ProjectPath::PATTERN, AllocationRequest::schema()),
            ("project", ProjectPath::PATTERN, ClaimRequest::schema()),
            ("path", ProjectPath::PATTERN, ProjectRequest::schema()),
            ("path", ProjectPath::PATTERN, LimitChangeBody::schema()),
            ("id", Name::PATTERN, TenantRequest::schema()),
            ("from", Name::PATTERN, VclusterNodesRequest::schema()),
        ];
        for (field, pattern, schema) in schemas {
            let schema = serde_json::to_value(schema).unwrap();
            assert_eq!(
                schema["properties"][field]["pattern"], pattern,
                "{schema:#}"
            );
        }
    }

    fn inside(pattern: &str) -> &str {
        pattern.trim_start_matches('^').trim_end_matches('$')
    }

    proptest! {
        #[test]
        fn what_the_document_lets_through_is_read(
            name in string_regex(inside(Name::PATTERN)).unwrap(),
            path in string_regex(inside(ProjectPath::PATTERN)).unwrap(),
            element in string_regex(inside(Element::PATTERN)).unwrap(),
        ) {
            prop_assume!(name.len() <= Name::LONGEST && path.len() <= ProjectPath::LONGEST);
            prop_assert!(NodeId::new(&name).is_ok(), "{name}");
            prop_assert!(Path::new(&path).is_ok(), "{path}");
            prop_assert!(element.parse::<JobRef>().is_ok(), "{element}");
            prop_assert!(element.len() <= Element::LONGEST);
        }
    }
}
