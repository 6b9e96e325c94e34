//! Rust types for the elements of a view, and conversions between them.

use half::{bf16, f16};
use num_complex::{Complex32, Complex64};

use crate::memory::zeroed;
use crate::{DType, Kind, Result};

/// A Rust type that elements can be read as: the integers, `bool`, `f32`, `f64`, `half::f16`,
/// `half::bf16`, `num_complex`'s complex numbers, and [`F8`] for the 8-bit floats.
pub trait Element: Copy + Send + Sync + 'static + sealed::Decode {
    /// The name of the type in messages.
    const NAME: &'static str;

    /// Returns `true` if elements of this kind can be read as this type without conversion.
    fn is(kind: Kind) -> bool;
}

/// The bits of an 8-bit float. The type of the view determines the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F8(pub u8);

mod sealed {
    use super::{Kind, Result};

    /// Makes elements from the bytes of a file.
    pub trait Decode: Sized {
        /// Returns elements whose bytes `fill` writes, in the machine's byte order.
        fn read_vec(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Vec<Self>>;

        /// Like [`read_vec`](Self::read_vec), into existing memory.
        fn read_slice(dst: &mut [Self], fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()>;

        /// Converts one element of another kind, given its bytes in the machine's byte order.
        fn convert(kind: Kind, bytes: &[u8]) -> Option<Self>;
    }
}

pub(crate) use sealed::Decode;

/// A number during a conversion, wide enough to be exact.
#[derive(Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
    Complex(f64, f64),
}

impl Number {
    /// Returns the value of an element of this kind.
    fn decode(kind: Kind, bytes: &[u8]) -> Option<Self> {
        fn take<T: bytemuck::Pod>(bytes: &[u8]) -> Option<T> {
            bytemuck::try_pod_read_unaligned(bytes).ok()
        }
        Some(match kind {
            Kind::Bool => Self::Int(i128::from(*bytes.first()? != 0)),
            Kind::U8 => Self::Int(take::<u8>(bytes)?.into()),
            Kind::U16 => Self::Int(take::<u16>(bytes)?.into()),
            Kind::U32 => Self::Int(take::<u32>(bytes)?.into()),
            Kind::U64 => Self::Int(take::<u64>(bytes)?.into()),
            Kind::I8 => Self::Int(take::<i8>(bytes)?.into()),
            Kind::I16 => Self::Int(take::<i16>(bytes)?.into()),
            Kind::I32 => Self::Int(take::<i32>(bytes)?.into()),
            Kind::I64 => Self::Int(take::<i64>(bytes)?.into()),
            Kind::F16 => Self::Float(take::<f16>(bytes)?.to_f64()),
            Kind::BF16 => Self::Float(take::<bf16>(bytes)?.to_f64()),
            Kind::F32 => Self::Float(take::<f32>(bytes)?.into()),
            Kind::F64 => Self::Float(take::<f64>(bytes)?),
            Kind::Complex64 => {
                let z: Complex32 = take(bytes)?;
                Self::Complex(z.re.into(), z.im.into())
            }
            Kind::Complex128 => {
                let z: Complex64 = take(bytes)?;
                Self::Complex(z.re, z.im)
            }
            f8 => Self::Float(decode_f8(f8, *bytes.first()?)?),
        })
    }

    /// Returns a real number; `None` for a complex one, as in NumPy's safe casts.
    fn real(self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(value as f64),
            Self::Float(value) => Some(value),
            Self::Complex(..) => None,
        }
    }
}

/// Returns the value of an 8-bit float.
fn decode_f8(kind: Kind, byte: u8) -> Option<f64> {
    let (exponent_bits, bias) = match kind {
        Kind::F8E8M0 => {
            let scale = 2f64.powi(i32::from(byte) - 127);
            return Some(if byte == 0xFF { f64::NAN } else { scale });
        }
        Kind::F8E4M3 => (4, 7),
        Kind::F8E4M3Fnuz => (4, 8),
        Kind::F8E5M2 => (5, 15),
        Kind::F8E5M2Fnuz => (5, 16),
        _ => return None,
    };
    let mantissa_bits = 7 - exponent_bits;
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((byte & 0x7F) >> mantissa_bits);
    let mantissa = f64::from(byte & ((1 << mantissa_bits) - 1));
    let one = f64::from(1 << mantissa_bits);
    let special = match kind {
        Kind::F8E4M3 if byte & 0x7F == 0x7F => Some(f64::NAN),
        Kind::F8E4M3Fnuz | Kind::F8E5M2Fnuz if byte == 0x80 => Some(f64::NAN),
        Kind::F8E5M2 if exponent == 31 && mantissa == 0.0 => Some(f64::INFINITY),
        Kind::F8E5M2 if exponent == 31 => Some(f64::NAN),
        _ => None,
    };
    let magnitude = special.unwrap_or_else(|| match exponent {
        0 => mantissa / one * 2f64.powi(1 - bias),
        _ => (1.0 + mantissa / one) * 2f64.powi(exponent - bias),
    });
    Some(sign * magnitude)
}

/// Types for which any bytes are valid.
macro_rules! plain {
    ($($type:ty: $($kind:ident)|+, $convert:expr;)+) => {$(
        impl Element for $type {
            const NAME: &'static str = stringify!($type);

            fn is(kind: Kind) -> bool {
                matches!(kind, $(Kind::$kind)|+)
            }
        }

        impl Decode for $type {
            fn read_vec(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Vec<Self>> {
                let mut elements = zeroed::<Self>(len)?;
                Self::read_slice(&mut elements, fill)?;
                Ok(elements)
            }

            fn read_slice(
                dst: &mut [Self],
                fill: impl FnOnce(&mut [u8]) -> Result<()>,
            ) -> Result<()> {
                fill(bytemuck::cast_slice_mut(dst))
            }

            fn convert(kind: Kind, bytes: &[u8]) -> Option<Self> {
                let convert: fn(Number) -> Option<Self> = $convert;
                Number::decode(kind, bytes).and_then(convert)
            }
        }
    )+};
}

/// Converts like Rust's `as`: integers wrap, floats saturate.
macro_rules! integer {
    ($type:ty) => {
        |number| match number {
            Number::Int(value) => Some(value as $type),
            Number::Float(value) => Some(value as $type),
            Number::Complex(..) => None,
        }
    };
}

plain! {
    u8: U8, integer!(u8);
    u16: U16, integer!(u16);
    u32: U32, integer!(u32);
    u64: U64, integer!(u64);
    i8: I8, integer!(i8);
    i16: I16, integer!(i16);
    i32: I32, integer!(i32);
    i64: I64, integer!(i64);
    f16: F16, |number| number.real().map(f16::from_f64);
    bf16: BF16, |number| number.real().map(bf16::from_f64);
    f32: F32, |number| number.real().map(|value| value as f32);
    f64: F64, Number::real;
    F8: F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz | F8E8M0, |_| None;
    Complex32: Complex64, |number| Some(match number {
        Number::Complex(re, im) => Complex32::new(re as f32, im as f32),
        real => Complex32::new(real.real()? as f32, 0.0),
    });
    Complex64: Complex128, |number| Some(match number {
        Number::Complex(re, im) => Complex64::new(re, im),
        real => Complex64::new(real.real()?, 0.0),
    });
}

impl Element for bool {
    const NAME: &'static str = "bool";

    fn is(kind: Kind) -> bool {
        kind == Kind::Bool
    }
}

impl Decode for bool {
    fn read_vec(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Vec<Self>> {
        // A file may hold any byte, but a `bool` only 0 or 1.
        Ok(u8::read_vec(len, fill)?.into_iter().map(|byte| byte != 0).collect())
    }

    fn read_slice(dst: &mut [Self], fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        dst.copy_from_slice(&Self::read_vec(dst.len(), fill)?);
        Ok(())
    }

    fn convert(kind: Kind, bytes: &[u8]) -> Option<Self> {
        Some(match Number::decode(kind, bytes)? {
            Number::Int(value) => value != 0,
            Number::Float(value) => value != 0.0,
            Number::Complex(re, im) => re != 0.0 || im != 0.0,
        })
    }
}

/// Converts elements to the machine's byte order.
pub(crate) fn to_native(dtype: DType, bytes: &mut [u8]) {
    if !dtype.is_native() {
        for part in bytes.chunks_exact_mut(dtype.kind.swap_bytes()) {
            part.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats_decode_to_their_values() {
        // The values are from the OCP specification and from ml_dtypes.
        for (kind, byte, value) in [
            (Kind::F8E4M3, 0x38, 1.0),
            (Kind::F8E4M3, 0x7E, 448.0),
            (Kind::F8E4M3, 0x01, 2f64.powi(-9)),
            (Kind::F8E4M3, 0xB8, -1.0),
            (Kind::F8E5M2, 0x3C, 1.0),
            (Kind::F8E5M2, 0x7B, 57344.0),
            (Kind::F8E5M2, 0x7C, f64::INFINITY),
            (Kind::F8E5M2, 0x01, 2f64.powi(-16)),
            (Kind::F8E4M3Fnuz, 0x40, 1.0),
            (Kind::F8E4M3Fnuz, 0x7F, 240.0),
            (Kind::F8E5M2Fnuz, 0x40, 1.0),
            (Kind::F8E5M2Fnuz, 0x7F, 57344.0),
            (Kind::F8E8M0, 127, 1.0),
            (Kind::F8E8M0, 130, 8.0),
        ] {
            assert_eq!(decode_f8(kind, byte), Some(value), "{kind:?} {byte:#x}");
        }
        for (kind, byte) in [
            (Kind::F8E4M3, 0x7F),
            (Kind::F8E5M2, 0x7D),
            (Kind::F8E4M3Fnuz, 0x80),
            (Kind::F8E5M2Fnuz, 0x80),
            (Kind::F8E8M0, 0xFF),
        ] {
            assert!(decode_f8(kind, byte).unwrap().is_nan(), "{kind:?} {byte:#x}");
        }
    }

    #[test]
    fn conversions_keep_the_value_if_it_fits() {
        assert_eq!(f64::convert(Kind::F16, &f16::from_f32(1.5).to_le_bytes()), Some(1.5));
        assert_eq!(u64::convert(Kind::U64, &u64::MAX.to_ne_bytes()), Some(u64::MAX));
        assert_eq!(i8::convert(Kind::F32, &(-300f32).to_ne_bytes()), Some(-128));
        assert_eq!(u8::convert(Kind::I16, &257i16.to_ne_bytes()), Some(1));
        assert_eq!(bool::convert(Kind::F64, &0.5f64.to_ne_bytes()), Some(true));
        assert_eq!(f32::convert(Kind::Complex64, &[0; 8]), None);
        assert_eq!(F8::convert(Kind::F32, &[0; 4]), None);
        assert_eq!(
            Complex64::convert(Kind::I32, &7i32.to_ne_bytes()),
            Some(Complex64::new(7.0, 0.0))
        );
    }

    #[test]
    fn byte_order_reverses_each_half_of_a_complex_number() {
        let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        to_native(">c8".parse().unwrap(), &mut bytes);
        assert_eq!(bytes, [4, 3, 2, 1, 8, 7, 6, 5]);
    }
}
