//! A call goes through.

use crate::harness::client::Call;
use crate::harness::fake::Fake;
use crate::harness::proxy::Proxy;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_goes_through() {
    let fake = Fake::new();
    let proxy = Proxy::before(&fake).await;
    let client = proxy.client().await;
    let got = client.call(Call::plain("ListImages")).await;
    assert_eq!(got.code(), 0, "{got:?}");
    proxy.wait_balanced(1).await;
    proxy.stop().await;
}
