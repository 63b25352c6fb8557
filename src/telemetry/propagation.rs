//! placeholder
use crate::cri::{call::TraceIds, method::Class};
#[derive(Debug)]
pub struct Tracer;
impl Tracer {
    pub fn begin(&self, _h: &http::HeaderMap, _c: Class) -> TraceIds { unimplemented!() }
}
pub fn inject(_ids: &TraceIds, _h: &mut http::HeaderMap) {}
