//! Amounts: decimal numbers in the API, stored as integers of a small unit (hours in milliseconds, fractions in
//! millionths). Integers compare and add exactly, and are shown as they were given.

use lattice_quorum_types::{
    budget::{HOUR_MS, ONE_PPM},
    limit::Patch,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{fmt, str::FromStr};

/// Largest number of hours or parts. Up to this limit, an amount in small units is exact as an `f64`.
const MAX_NUMBER: f64 = 1e9;

/// Hours, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hours(pub u64);

/// Fraction or multiple, in millionths: 0.15 is 150,000.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(pub u64);

/// Amount that is stored as an integer of a small unit.
pub trait Amount: Copy {
    /// Small units per 1.
    const UNITS_PER_ONE: u64;
    /// Name of the quantity, for errors.
    const QUANTITY: &'static str;
    /// Creates the amount from small units.
    fn from_small_units(small: u64) -> Self;
    /// Returns the amount in small units.
    fn in_small_units(self) -> u64;

    /// Returns the amount as a decimal number.
    fn number(self) -> f64 {
        self.in_small_units() as f64 / Self::UNITS_PER_ONE as f64
    }
    /// Creates the amount from a decimal number, rounded to the small unit.
    ///
    /// # Errors
    /// A number below 0 or above a billion, or NaN.
    fn from_number(number: f64) -> Result<Self, String> {
        if !(0.0..=MAX_NUMBER).contains(&number) {
            return Err(format!(
                "{number} is not a valid {}; it must be from 0 to {MAX_NUMBER}",
                Self::QUANTITY
            ));
        }
        Ok(Self::from_small_units(
            (number * Self::UNITS_PER_ONE as f64).round() as u64,
        ))
    }
}

impl Amount for Hours {
    const UNITS_PER_ONE: u64 = HOUR_MS;
    const QUANTITY: &'static str = "number of hours";
    fn from_small_units(small: u64) -> Self {
        Self(small)
    }
    fn in_small_units(self) -> u64 {
        self.0
    }
}

impl Amount for Fraction {
    const UNITS_PER_ONE: u64 = ONE_PPM;
    const QUANTITY: &'static str = "fraction";
    fn from_small_units(small: u64) -> Self {
        Self(small)
    }
    fn in_small_units(self) -> u64 {
        self.0
    }
}

macro_rules! amount {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.number().fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                let number = text.parse::<f64>();
                let number = number.map_err(|_| format!("{text:?} is not a number"))?;
                Self::from_number(number)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_f64(self.number())
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::from_number(f64::deserialize(from)?).map_err(D::Error::custom)
            }
        }
    };
}
amount!(Hours);
amount!(Fraction);

/// Change to an optional amount, as a field: a number sets it, `null` removes it, and a field left out keeps it.
pub(crate) mod patch {
    use super::{Amount, Deserialize, Deserializer, Patch, Serialize, Serializer};
    use crate::notation::amount::{Fraction, Hours};

    fn write<A: Amount + Serialize, S: Serializer>(
        patch: &Patch,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match patch {
            Patch::Set(small) => A::from_small_units(*small).serialize(to),
            Patch::Unlimited | Patch::Unchanged => to.serialize_none(),
        }
    }
    fn read<'de, A: Amount + Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Patch, D::Error> {
        let given = Option::<A>::deserialize(from)?;
        Ok(given.map_or(Patch::Unlimited, |amount| {
            Patch::Set(amount.in_small_units())
        }))
    }

    pub(crate) mod hours {
        use super::{Deserializer, Hours, Patch, Serializer, read, write};
        pub(crate) fn serialize<S: Serializer>(patch: &Patch, to: S) -> Result<S::Ok, S::Error> {
            write::<Hours, S>(patch, to)
        }
        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Patch, D::Error> {
            read::<Hours, D>(from)
        }
    }
    pub(crate) mod parts {
        use super::{Deserializer, Fraction, Patch, Serializer, read, write};
        pub(crate) fn serialize<S: Serializer>(patch: &Patch, to: S) -> Result<S::Ok, S::Error> {
            write::<Fraction, S>(patch, to)
        }
        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Patch, D::Error> {
            read::<Fraction, D>(from)
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_amount_comes_back_as_it_was_given() {
        for text in ["0", "0.15", "1.5", "87500", "100000", "150000.25", "0.001"] {
            assert_eq!(text.parse::<Hours>().unwrap().to_string(), text);
            assert_eq!(text.parse::<Fraction>().unwrap().to_string(), text);
        }
        assert_eq!("100000".parse::<Hours>().unwrap(), Hours(360_000_000_000));
        assert_eq!("0.15".parse::<Fraction>().unwrap(), Fraction(150_000));
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["-1", "NaN", "inf", "1e10", "many", ""] {
            assert!(text.parse::<Hours>().is_err(), "{text}");
            assert!(text.parse::<Fraction>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<Hours>("-0.5").is_err());
    }
}
