pub fn exp(x: f32) -> f32 { x.exp() } pub fn exp2(x: f32) -> f32 { x.exp2() } pub fn expm1(x: f32) -> f32 { x.exp_m1() }
pub fn log(x: f32) -> f32 { x.ln() } pub fn log2(x: f32) -> f32 { x.log2() } pub fn log10(x: f32) -> f32 { x.log10() } pub fn log1p(x: f32) -> f32 { x.ln_1p() }
pub fn sin(x: f32) -> f32 { x.sin() } pub fn cos(x: f32) -> f32 { x.cos() } pub fn tanh(x: f32) -> f32 { x.tanh() } pub fn sigmoid(x: f32) -> f32 { 1.0/(1.0+(-x).exp()) }
pub fn erf(x: f32) -> f32 { libm::erff(x) } pub fn erfc(x: f32) -> f32 { libm::erfcf(x) }
