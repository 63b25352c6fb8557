//! temporary
use std::sync::Arc;
use criscope::*;
struct Nop;
impl instrument::Observe for Nop { fn begin(&self,_:&cri::Call){} fn end(&self,_:&Arc<cri::Call>,_:&cri::Outcome){} }
fn main(){
    let a: Vec<String> = std::env::args().collect();
    let get=|n:&str| a.iter().position(|x|x==n).map(|i|a[i+1].trim_start_matches("unix://").to_owned()).unwrap();
    let mut c = config::Config::with_upstream(get("--upstream").into()); c.server.listen=get("--listen").into();
    let rt=tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async move {
        let (l,_f)=listener::Socket::bind(&c.server).unwrap().into_parts();
        let up=Arc::new(upstream::Upstream::new("u",get("--upstream").into()));
        let parts=stack::Parts{shared:instrument::layer::Shared{observer:Arc::new(Nop),in_flight:Default::default(),tracer:None,seq:Default::default()},index:Arc::new(identity::Index::new(100,100)),max_message_bytes:16<<20};
        listener::serve(l, move |p| stack::stack(&parts,p,wire::CriService::new(upstream::Forward::new(up.clone()))), Default::default(), Default::default(), std::time::Duration::from_secs(5)).await.unwrap();
    });
}
