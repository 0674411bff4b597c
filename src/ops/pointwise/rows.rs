//! The one macro of the pointwise family: an operator type from expressions by class of element.
//!
//! `map_op!(Neg, 1, [int] |x, c| x.wrapping_neg(), [float complex] |x, c| -x);` makes the type `Neg`, its loops for
//! the integer, real and complex types, and `Neg::kernel`. `=> bool` or `=> real` after the arity changes the
//! result's type. A class is a function of [`cpu::map`](crate::cpu::map), which chooses the instruction sets: in place of
//! `float`, `light` says that memory is the limit, not arithmetic, `common` that models are full of it besides, `exact` that its results have no more digits than its operands at that (`whole`: that they are whole numbers, or chosen among many; `signed`: that they differ in signs, which `bits` says of the bits of 16-bit floats), `heavy` that there is no branch-free
//! form; `int_heavy` does so in place of `int`,
//! and `paired` in place of `complex` says that there is one, `plainly` that memory is the limit. `fast => exact`: a branch-free form gives NaN where it does not reach, and
//! is followed by what is computed there. Inside an expression `T` is the element type
//! and `c` the [`Ctx`](crate::cpu::map::Ctx).

#[doc(hidden)]
#[macro_export]
macro_rules! map_op {
    ($N:ident, $arity:tt $(=> $out:ident)?, $([$($class:ident)+] |$($x:ident),+| $e:expr $(=> $again:expr)?),+ $(,)?) => {
        #[derive(Clone, Copy)]
        pub(super) struct $N;
        $crate::map_op!(@each $N, $arity, [$($out)?], $([$($class)+] [$($x),+] [$e $(=> $again)?])+);
        impl $N {
            #[allow(unreachable_code)]
            pub(super) fn kernel(d: $crate::DType) -> Option<&'static $crate::cpu::map::Loop> {
                $($(if let Some(k) = $crate::cpu::map::$class::<$N>(d) { return Some(k); })+)+
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
    (@class int_heavy $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [u8 i8 i16 i32 i64] $N, $arity, $out, $x $e);
    };
    (@class uint $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [u16 u32 u64] $N, $arity, $out, $x $e);
    };
    (@class float $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [f32 f64] $N, $arity, $out, $x $e);
    };
    (@class heavy $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [f32 f64] $N, $arity, $out, $x $e);
    };
    (@class light $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [f32 f64] $N, $arity, $out, $x $e);
    };
    (@class common $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [f32 f64] $N, $arity, $out, $x $e);
    };
    (@class exact $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [f32 f64] $N, $arity, $out, $x $e);
    };
    (@class signed $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [f32 f64] $N, $arity, $out, $x $e);
    };
    (@class bits $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [u16] $N, $arity, $out, $x $e);
    };
    (@class whole $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@types [f32 f64] $N, $arity, $out, $x $e);
    };
    (@class complex $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@complex $N, $arity, $out, $x $e);
    };
    (@class plainly $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
        $crate::map_op!(@complex $N, $arity, $out, $x $e);
    };
    (@class paired $N:ident, $arity:tt, $out:tt, $x:tt $e:tt) => {
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
    (@fn $t:ident, $o:ident, $N:ident, 1, [$x:ident, $c:ident] $e:tt) => {
        $crate::map_op!(@body 1 Never, $t, $o, $N, [$x, _y, _z], $c, $e);
    };
    (@fn $t:ident, $o:ident, $N:ident, 2, [$x:ident, $y:ident, $c:ident] $e:tt) => {
        $crate::map_op!(@body 2 Never, $t, $o, $N, [$x, $y, _z], $c, $e);
    };
    (@fn $t:ident, $o:ident, $N:ident, swaps, [$x:ident, $y:ident, $c:ident] $e:tt) => {
        $crate::map_op!(@body 2 Always, $t, $o, $N, [$x, $y, _z], $c, $e);
    };
    (@fn $t:ident, $o:ident, $N:ident, sums, [$x:ident, $y:ident, $c:ident] $e:tt) => {
        $crate::map_op!(@body 2 Unscaled, $t, $o, $N, [$x, $y, _z], $c, $e);
    };
    (@fn $t:ident, $o:ident, $N:ident, 3, [$x:ident, $y:ident, $z:ident, $c:ident] $e:tt) => {
        $crate::map_op!(@body 3 Never, $t, $o, $N, [$x, $y, $z], $c, $e);
    };
    (@body $n:literal $swaps:ident, $t:ident, $o:ident, $N:ident, [$x:ident, $y:ident, $z:ident], $c:ident, [$e:expr $(=> $again:expr)?]) => {
        impl $crate::cpu::map::Op<$t> for $N {
            type Out = $o;
            const OPERANDS: usize = $n;
            const SWAPS: $crate::cpu::map::Swaps = $crate::cpu::map::Swaps::$swaps;
            #[inline(always)]
            #[allow(unused_variables)]
            fn f([$x, $y, $z]: [$t; 3], $c: &$crate::cpu::map::Ctx) -> $o { #[allow(unused)] type T = $t; $e }
            $(
                #[inline(always)]
                fn missed(made: $o) -> bool { made != made }
                #[inline(always)]
                #[allow(unused_variables, clippy::unnecessary_cast)]
                fn again([$x, $y, $z]: [$t; 3], $c: &$crate::cpu::map::Ctx) -> $o { #[allow(unused)] type T = $t; $again }
            )?
        }
    };
}

/// A row of a pointwise table.
///
/// `map_row!(Exp "exp", 1, float, FMIO, "exp(a)", "(Tensor self)", "e to the power of each element.").grad("self: grad * result.conj(); jvp: pointwise")`: operator type, public
/// name, arity, type rule, forms, CUDA expression, schema, one sentence. Before the forms `typed!(f, DType)` gives the
/// numbers that the loop needs, from the arguments and the dtype of the loop, and `check typed!(f, DType)` looks at values; `beside f` gives the loop for a certain number as second operand.
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
    ($N:ident $name:literal, $arity:literal, $types:ident, beside $beside:expr, check $check:expr, $forms:expr, $cuda:literal, $schema:literal, $doc:literal) => {{
        static ROW: $crate::ops::pointwise::rule::MapRow = $crate::ops::pointwise::rule::MapRow {
            beside: Some($beside),
            check: $check,
            ..$crate::ops::pointwise::rule::row($arity, $types, $N::kernel, $cuda)
        };
        $crate::ops::pointwise::rule::def($name, $schema, $forms, &ROW, $doc)
    }};
    ($N:ident $name:literal, $arity:literal, $types:ident, with $ctx:expr, check $check:expr, $forms:expr, $cuda:literal, $schema:literal, $doc:literal) => {{
        static ROW: $crate::ops::pointwise::rule::MapRow = $crate::ops::pointwise::rule::MapRow {
            ctx: $ctx,
            check: $check,
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
