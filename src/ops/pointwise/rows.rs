//! The one macro of the pointwise family: an operator type from expressions by class of element.
//!
//! `map_op!(Neg, 1, [int] |x, c| x.wrapping_neg(), [float complex] |x, c| -x);` makes the type `Neg`, its loops for
//! the integer, real and complex types, and `Neg::kernel`. `=> bool` or `=> real` after the arity changes the
//! result's type. `light` in place of `float` says that memory is the limit, not arithmetic. Inside an expression `T` is the element type and `c` the [`Ctx`](crate::cpu::map::Ctx).

#[doc(hidden)]
#[macro_export]
macro_rules! map_op {
    ($N:ident, $arity:tt $(=> $out:ident)?, $([$($class:ident)+] |$($x:ident),+| $e:expr),+ $(,)?) => {
        #[derive(Clone, Copy)]
        struct $N;
        $crate::map_op!(@each $N, $arity, [$($out)?], $([$($class)+] [$($x),+] [$e])+);
        impl $N {
            #[allow(unreachable_code)]
            fn kernel(d: $crate::DType) -> Option<$crate::cpu::map::Loop> {
                $($(if let Some(k) = $crate::map_op!(@pick $arity $class $N, d) { return Some(k); })+)+
                None
            }
        }
    };
    (@each $N:ident, $arity:tt, $out:tt, $([$($class:ident)+] $x:tt $e:tt)+) => {
        $($crate::map_op!(@classes $N, $arity, $out, [$($class)+] $x $e);)+
    };
    (@classes $N:ident, $arity:tt, $out:tt, [$($class:ident)+] $x:tt $e:tt) => {
        $($crate::map_op!(@class $class $N, $arity, $out, $x $e);)+
    };
    (@class int $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [u8 i8 i16 i32 i64] $N, $arity, $out, $x $e);
    };
    (@class uint $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [u16 u32 u64] $N, $arity, $out, $x $e);
    };
    (@class float $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [f32 f64] $N, $arity, $out, $x $e);
    };
    (@class light $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [f32 f64] $N, $arity, $out, $x $e);
    };
    (@class complex $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@complex $N, $arity, $out, $x $e);
    };
    (@class boolean $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [bool] $N, $arity, $out, $x $e);
    };
    (@types [$($t:ident)+] $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $($crate::map_op!(@impl $t, $t, $N, $arity, $out, $x $e);)+
    };
    (@complex $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@impl Complex32, f32, $N, $arity, $out, $x $e);
        $crate::map_op!(@impl Complex64, f64, $N, $arity, $out, $x $e);
    };
    (@impl $t:ident, $re:ident, $N:ident, $arity:tt, [], $x:tt $e:tt) => {
        $crate::map_op!(@fn $t, $t, $N, $arity, $x $e);
    };
    (@impl $t:ident, $re:ident, $N:ident, $arity:tt, [bool], $x:tt $e:tt) => {
        $crate::map_op!(@fn $t, bool, $N, $arity, $x $e);
    };
    (@impl $t:ident, $re:ident, $N:ident, $arity:tt, [real], $x:tt $e:tt) => {
        $crate::map_op!(@fn $t, $re, $N, $arity, $x $e);
    };
    (@fn $t:ident, $o:ident, $N:ident, 1, [$x:ident, $c:ident] [$e:expr]) => {
        impl $crate::cpu::map::Un<$t> for $N {
            type Out = $o;
            #[inline(always)]
            #[allow(unused_variables)]
            fn f($x: $t, $c: &$crate::cpu::map::Ctx) -> $o { #[allow(unused)] type T = $t; $e }
        }
    };
    (@fn $t:ident, $o:ident, $N:ident, 2, [$x:ident, $y:ident, $c:ident] [$e:expr]) => {
        impl $crate::cpu::map::Bin<$t> for $N {
            type Out = $o;
            #[inline(always)]
            #[allow(unused_variables)]
            fn f($x: $t, $y: $t, $c: &$crate::cpu::map::Ctx) -> $o { #[allow(unused)] type T = $t; $e }
        }
    };
    (@fn $t:ident, $o:ident, $N:ident, 3, [$x:ident, $y:ident, $z:ident, $c:ident] [$e:expr]) => {
        impl $crate::cpu::map::Tri<$t> for $N {
            type Out = $o;
            #[inline(always)]
            #[allow(unused_variables)]
            fn f($x: $t, $y: $t, $z: $t, $c: &$crate::cpu::map::Ctx) -> $o { #[allow(unused)] type T = $t; $e }
        }
    };
    (@pick 1 int $N:ident, $d:ident) => { $crate::cpu::map::int1::<$N>($d) };
    (@pick 1 uint $N:ident, $d:ident) => { $crate::cpu::map::uint1::<$N>($d) };
    (@pick 1 float $N:ident, $d:ident) => { $crate::cpu::map::float1::<$N>($d) };
    (@pick 1 light $N:ident, $d:ident) => { $crate::cpu::map::light1::<$N>($d) };
    (@pick 1 complex $N:ident, $d:ident) => { $crate::cpu::map::complex1::<$N>($d) };
    (@pick 1 boolean $N:ident, $d:ident) => { $crate::cpu::map::bool1::<$N>($d) };
    (@pick 2 int $N:ident, $d:ident) => { $crate::cpu::map::int2::<$N>($d) };
    (@pick 2 uint $N:ident, $d:ident) => { $crate::cpu::map::uint2::<$N>($d) };
    (@pick 2 float $N:ident, $d:ident) => { $crate::cpu::map::float2::<$N>($d) };
    (@pick 2 light $N:ident, $d:ident) => { $crate::cpu::map::light2::<$N>($d) };
    (@pick 2 complex $N:ident, $d:ident) => { $crate::cpu::map::complex2::<$N>($d) };
    (@pick 2 boolean $N:ident, $d:ident) => { $crate::cpu::map::bool2::<$N>($d) };
    (@pick 3 int $N:ident, $d:ident) => { $crate::cpu::map::int3::<$N>($d) };
    (@pick 3 uint $N:ident, $d:ident) => { $crate::cpu::map::uint3::<$N>($d) };
    (@pick 3 float $N:ident, $d:ident) => { $crate::cpu::map::float3::<$N>($d) };
    (@pick 3 light $N:ident, $d:ident) => { $crate::cpu::map::light3::<$N>($d) };
    (@pick 3 complex $N:ident, $d:ident) => { $crate::cpu::map::complex3::<$N>($d) };
    (@pick 3 boolean $N:ident, $d:ident) => { $crate::cpu::map::bool3::<$N>($d) };
}

/// A row of a pointwise table.
///
/// `map_row!(Exp "exp", float, FMIO, "exp(a)", "(Tensor self)", "e to the power of each element.")`: operator type, public
/// name, type rule, forms, CUDA expression, schema, one sentence.
#[doc(hidden)]
#[macro_export]
macro_rules! map_row {
    ($N:ident $name:literal, $arity:literal, $types:ident, $forms:expr, $cuda:literal, $schema:literal, $doc:literal) => {{
        static ROW: $crate::ops::pointwise::rule::MapRow =
            $crate::ops::pointwise::rule::row($arity, $types, $N::kernel, $cuda);
        $crate::ops::pointwise::rule::def($name, $schema, $forms, &ROW, $doc)
    }};
    ($N:ident $name:literal, $arity:literal, $types:ident, $ctx:expr, $forms:expr, $cuda:literal, $schema:literal, $doc:literal) => {{
        static ROW: $crate::ops::pointwise::rule::MapRow = $crate::ops::pointwise::rule::MapRow {
            ctx: $ctx,
            ..$crate::ops::pointwise::rule::row($arity, $types, $N::kernel, $cuda)
        };
        $crate::ops::pointwise::rule::def($name, $schema, $forms, &ROW, $doc)
    }};
    ($N:ident $name:literal, $arity:literal, $types:ident, check $check:expr, $forms:expr, $cuda:literal, $schema:literal, $doc:literal) => {{
        static ROW: $crate::ops::pointwise::rule::MapRow = $crate::ops::pointwise::rule::MapRow {
            check: $check,
            ..$crate::ops::pointwise::rule::row($arity, $types, $N::kernel, $cuda)
        };
        $crate::ops::pointwise::rule::def($name, $schema, $forms, &ROW, $doc)
    }};
}
