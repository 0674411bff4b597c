//! Element types: sizes, names, categories and PyTorch's promotion rules.
//!
//! Storage holds bytes; a [`DType`] lives on the tensor. Kernels reach a concrete Rust type through
//! the [`with_dtype!`](crate::with_dtype) switch.

use std::fmt;

macro_rules! dtypes {
    ($($variant:ident $name:literal $size:literal $scalar:literal;)+) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the variants are PyTorch's dtype names")]
        pub enum DType { $($variant),+ }

        impl DType {
            /// Every dtype, in declaration order.
            pub const ALL: &'static [DType] = &[$(DType::$variant),+];

            /// The name without a module prefix: `float32`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name),+ }
            }

            /// Bytes of one element.
            #[must_use]
            pub const fn size(self) -> usize {
                match self { $(DType::$variant => $size),+ }
            }

            /// The C++ scalar type name that PyTorch's messages use: `Float`, `Long`.
            #[must_use]
            pub const fn scalar_type(self) -> &'static str {
                match self { $(DType::$variant => $scalar),+ }
            }
        }
    };
}

dtypes! {
    Bool "bool" 1 "Bool";
    U8 "uint8" 1 "Byte";
    I8 "int8" 1 "Char";
    I16 "int16" 2 "Short";
    I32 "int32" 4 "Int";
    I64 "int64" 8 "Long";
    F16 "float16" 2 "Half";
    BF16 "bfloat16" 2 "BFloat16";
    F32 "float32" 4 "Float";
    F64 "float64" 8 "Double";
    C32 "complex32" 4 "ComplexHalf";
    C64 "complex64" 8 "ComplexFloat";
    C128 "complex128" 16 "ComplexDouble";
    U16 "uint16" 2 "UInt16";
    U32 "uint32" 4 "UInt32";
    U64 "uint64" 8 "UInt64";
    F8E4M3FN "float8_e4m3fn" 1 "Float8_e4m3fn";
    F8E5M2 "float8_e5m2" 1 "Float8_e5m2";
    F8E4M3FNUZ "float8_e4m3fnuz" 1 "Float8_e4m3fnuz";
    F8E5M2FNUZ "float8_e5m2fnuz" 1 "Float8_e5m2fnuz";
    F8E8M0FNU "float8_e8m0fnu" 1 "Float8_e8m0fnu";
    F4E2M1FNx2 "float4_e2m1fn_x2" 1 "Float4_e2m1fn_x2";
    QI8 "qint8" 1 "QInt8";
    QU8 "quint8" 1 "QUInt8";
    QI32 "qint32" 4 "QInt32";
    QU4x2 "quint4x2" 1 "QUInt4x2";
    QU2x4 "quint2x4" 1 "QUInt2x4";
    Bits8 "bits8" 1 "Bits8";
}

/// The three groups that decide promotion between a tensor and a Python number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// True and false.
    Bool,
    /// Signed and unsigned integers.
    Integral,
    /// Real floating point.
    Float,
    /// Complex floating point.
    Complex,
}

impl DType {
    /// The promotion group; quantised and bit types count as integers.
    #[must_use]
    pub const fn category(self) -> Category {
        use DType::*;
        match self {
            Bool => Category::Bool,
            F16 | BF16 | F32 | F64 | F8E4M3FN | F8E5M2 | F8E4M3FNUZ | F8E5M2FNUZ | F8E8M0FNU
            | F4E2M1FNx2 => Category::Float,
            C32 | C64 | C128 => Category::Complex,
            _ => Category::Integral,
        }
    }

    /// The C++ type by which some of PyTorch's messages call the elements.
    #[must_use]
    pub const fn cpp_name(self) -> &'static str {
        use DType::*;
        match self {
            Bool => "bool",
            U8 => "unsigned char",
            I8 => "signed char",
            I16 => "short int",
            I32 => "int",
            I64 => "long int",
            U16 => "short unsigned int",
            U32 => "unsigned int",
            U64 => "long unsigned int",
            F16 => "c10::Half",
            BF16 => "c10::BFloat16",
            F32 => "float",
            F64 => "double",
            C32 => "c10::complex<c10::Half>",
            C64 => "c10::complex<float>",
            C128 => "c10::complex<double>",
            other => other.name(),
        }
    }

    /// Refuses another type beside this one.
    ///
    /// # Errors
    /// PyTorch's text.
    pub fn check_same(self, found: Self) -> crate::Result<()> {
        crate::ensure!(
            self == found,
            Runtime,
            "expected scalar type {} but found {}",
            self.scalar_type(),
            found.scalar_type()
        );
        Ok(())
    }

    /// PyTorch's error for a kernel that does not have this element type.
    #[cold]
    #[must_use]
    pub fn no_kernel(self, kernel: impl fmt::Display) -> crate::Error {
        crate::err!(
            NotImplemented,
            "\"{kernel}\" not implemented for '{}'",
            self.scalar_type()
        )
    }

    /// Checks that a kernel has this element type.
    ///
    /// # Errors
    /// [`DType::no_kernel`].
    pub fn check_kernel(self, has: bool, kernel: impl fmt::Display) -> crate::Result<()> {
        if has {
            Ok(())
        } else {
            Err(self.no_kernel(kernel))
        }
    }

    /// Checks this element type for a kernel that has those floating types that are computed with.
    ///
    /// # Errors
    /// [`DType::no_kernel`].
    pub fn check_float_kernel(self, kernel: impl fmt::Display) -> crate::Result<()> {
        self.check_kernel(self.is_float() && !self.is_storage_only(), kernel)
    }

    /// True for real floating point types.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self.category(), Category::Float)
    }

    /// True for complex types.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(self.category(), Category::Complex)
    }

    /// True for integers and, if `with_bool`, for bool.
    #[must_use]
    pub const fn is_integral(self, with_bool: bool) -> bool {
        match self.category() {
            Category::Integral => true,
            Category::Bool => with_bool,
            _ => false,
        }
    }

    /// True for integer types that can be negative, and for all floating and complex types.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        use DType::*;
        !matches!(
            self,
            Bool | U8 | U16 | U32 | U64 | QU8 | QU4x2 | QU2x4 | Bits8 | F8E8M0FNU
        )
    }

    /// True for f16, bf16 and the 8-bit floats: types whose arithmetic is done in f32.
    #[must_use]
    pub const fn is_reduced_float(self) -> bool {
        self.is_float() && self.size() < 4
    }

    /// True for the types that are stored and converted but not computed with.
    #[must_use]
    pub const fn is_storage_only(self) -> bool {
        (self as u8) >= (DType::F8E4M3FN as u8)
    }

    /// True for the quantised types, whose integers mean something only with a quantizer.
    #[must_use]
    pub const fn is_quantized(self) -> bool {
        use DType::*;
        matches!(self, QI8 | QU8 | QI32 | QU4x2 | QU2x4)
    }

    /// How many elements share a byte, for quantised types of less than one.
    #[must_use]
    pub const fn per_byte(self) -> Option<usize> {
        match self {
            DType::QU4x2 => Some(2),
            DType::QU2x4 => Some(4),
            _ => None,
        }
    }

    /// The distance from 1 to the next number of the type that numbers of this one are computed in: double or single precision.
    #[must_use]
    pub fn epsilon(self) -> f64 {
        match self.to_real() {
            DType::F64 => f64::EPSILON,
            _ => f64::from(f32::EPSILON),
        }
    }

    /// The real type of a complex type's parts; other types are returned unchanged.
    #[must_use]
    pub const fn to_real(self) -> DType {
        match self {
            DType::C32 => DType::F16,
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            other => other,
        }
    }

    /// The complex type whose parts have this type (bf16 goes to complex64, integers to complex64).
    #[must_use]
    pub const fn to_complex(self) -> DType {
        match self {
            DType::F16 | DType::C32 => DType::C32,
            DType::F64 | DType::C128 => DType::C128,
            _ => DType::C64,
        }
    }

    /// Finds a dtype by its PyTorch name, aliases (`float`, `half`, `long`, ...) included.
    #[must_use]
    pub fn from_name(name: &str) -> Option<DType> {
        let canonical = match name {
            "float" => "float32",
            "double" => "float64",
            "half" => "float16",
            "short" => "int16",
            "int" => "int32",
            "long" => "int64",
            "chalf" => "complex32",
            "cfloat" => "complex64",
            "cdouble" => "complex128",
            other => other,
        };
        Self::ALL.iter().copied().find(|d| d.name() == canonical)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The dtype that arithmetic between tensors of types `a` and `b` has
/// (`torch.promote_types`); `None` where PyTorch has no common type.
#[must_use]
pub const fn promote(a: DType, b: DType) -> Option<DType> {
    use DType::*;
    if a as u8 == b as u8 {
        return Some(a);
    }
    if a.is_storage_only() || b.is_storage_only() {
        return None;
    }
    if matches!(a, Bool) {
        return Some(b);
    }
    if matches!(b, Bool) {
        return Some(a);
    }
    let (ca, cb) = (a.category(), b.category());
    Some(match (ca, cb) {
        (Category::Integral, Category::Integral) => match promote_integers(a, b) {
            Some(t) => t,
            None => return None,
        },
        (Category::Integral, _) => b,
        (_, Category::Integral) => a,
        (Category::Float, Category::Float) => promote_floats(a, b),
        _ => {
            let real = promote_floats(a.to_real(), b.to_real());
            // bfloat16 has no complex of its own: with complex32 it becomes complex64.
            if matches!(real, BF16) {
                C64
            } else {
                real.to_complex()
            }
        }
    })
}

const fn promote_integers(a: DType, b: DType) -> Option<DType> {
    use DType::*;
    // uint16..64 promote only among unsigned types of their kind; PyTorch refuses signed partners.
    match (a, b) {
        (U8, x) | (x, U8) => match x {
            I8 => Some(I16),
            other => Some(other),
        },
        _ => {
            let (wa, wb) = (matches!(a, U16 | U32 | U64), matches!(b, U16 | U32 | U64));
            if wa != wb {
                None
            } else if a.size() >= b.size() {
                Some(a)
            } else {
                Some(b)
            }
        }
    }
}

const fn promote_floats(a: DType, b: DType) -> DType {
    use DType::*;
    match (a, b) {
        (F16, BF16) | (BF16, F16) => F32,
        _ => {
            if a.size() >= b.size() {
                a
            } else {
                b
            }
        }
    }
}

/// True if a value of type `from` may be written into a tensor of type `to` without dropping a
/// category (`torch.can_cast`): complex to real, float to integer and number to bool may not.
#[must_use]
pub const fn can_cast(from: DType, to: DType) -> bool {
    (to.category() as u8) >= (from.category() as u8)
        || (matches!(from.category(), Category::Integral)
            && matches!(to.category(), Category::Integral))
}

/// Runs a block with a type alias bound to the Rust type of a dtype.
///
/// `with_dtype!(dtype, classes => T, { ... }, else { ... })`, where `classes` is any of
/// `bool int uint half float complex`, e.g. `with_dtype!(d, [int float] => T, {..}, else {..})`.
#[macro_export]
macro_rules! with_dtype {
    ($d:expr, [$($class:ident)+] => $T:ident, $body:block, else $other:block) => {
        $crate::with_dtype!(@go $d, $T, $body, $other, [$($class)+] [])
    };
    (@go $d:expr, $T:ident, $body:block, $other:block, [bool $($rest:ident)*] [$($arms:tt)*]) => {
        $crate::with_dtype!(@go $d, $T, $body, $other, [$($rest)*] [$($arms)* Bool bool;])
    };
    (@go $d:expr, $T:ident, $body:block, $other:block, [int $($rest:ident)*] [$($arms:tt)*]) => {
        $crate::with_dtype!(@go $d, $T, $body, $other, [$($rest)*] [$($arms)* U8 u8; I8 i8; I16 i16; I32 i32; I64 i64;])
    };
    (@go $d:expr, $T:ident, $body:block, $other:block, [uint $($rest:ident)*] [$($arms:tt)*]) => {
        $crate::with_dtype!(@go $d, $T, $body, $other, [$($rest)*] [$($arms)* U16 u16; U32 u32; U64 u64;])
    };
    (@go $d:expr, $T:ident, $body:block, $other:block, [half $($rest:ident)*] [$($arms:tt)*]) => {
        $crate::with_dtype!(@go $d, $T, $body, $other, [$($rest)*] [$($arms)* F16 half::f16; BF16 half::bf16;])
    };
    (@go $d:expr, $T:ident, $body:block, $other:block, [float $($rest:ident)*] [$($arms:tt)*]) => {
        $crate::with_dtype!(@go $d, $T, $body, $other, [$($rest)*] [$($arms)* F32 f32; F64 f64;])
    };
    (@go $d:expr, $T:ident, $body:block, $other:block, [complex $($rest:ident)*] [$($arms:tt)*]) => {
        $crate::with_dtype!(@go $d, $T, $body, $other, [$($rest)*] [$($arms)* C64 num_complex::Complex32; C128 num_complex::Complex64;])
    };
    (@go $d:expr, $T:ident, $body:block, $other:block, [] [$($variant:ident $ty:ty;)+]) => {
        match $d {
            $($crate::DType::$variant => { type $T = $ty; $body })+
            #[allow(unreachable_patterns)]
            _ => $other,
        }
    };
}

#[cfg(test)]
mod tests {
    use super::DType::*;
    use super::*;

    #[test]
    fn promotion_follows_pytorch() {
        for (a, b, want) in [
            (F16, BF16, Some(F32)),
            (U8, I8, Some(I16)),
            (I64, F16, Some(F16)),
            (C64, F64, Some(C128)),
            (BF16, C32, Some(C64)),
            (U16, I32, None),
            (U8, U16, Some(U16)),
            (Bool, C64, Some(C64)),
            (F8E5M2, F32, None),
        ] {
            assert_eq!(promote(a, b), want, "{a} with {b}");
            assert_eq!(promote(b, a), want, "{b} with {a}");
        }
    }
}
