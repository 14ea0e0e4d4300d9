//! Numbers to and from other formats: input is checked as [`TryFrom`] checks it.

use core::convert::Infallible;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::FlowId;
use crate::tree::ClassId;
use crate::units::{Length, Nanos, Rate, Weight};

macro_rules! as_numbers {
    ($($type:ty: $number:ty, $get:expr, $make:expr;)*) => {$(
        /// A number.
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                ($get)(*self).serialize(serializer)
            }
        }

        /// A number, if it is in range.
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let number = <$number>::deserialize(deserializer)?;
                ($make)(number).map_err(D::Error::custom)
            }
        }
    )*};
}

/// There is no number that is none of these.
fn any<N, T>(make: fn(N) -> T) -> impl Fn(N) -> Result<T, Infallible> {
    move |number| Ok(make(number))
}

as_numbers! {
    Length: u32, Length::get, Length::try_from;
    Weight: u32, Weight::get, Weight::try_from;
    Rate: u64, Rate::bps, Rate::try_from;
    Nanos: u64, |time: Nanos| time.0, any(Nanos);
    FlowId: u32, FlowId::number, any(FlowId::new);
    ClassId: u32, ClassId::number, any(ClassId::new);
}
