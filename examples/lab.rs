use criscope::runtime::{
    cni,
    grpc::Builtin,
    image::ImagesConfig,
    node,
    oci::{OciRuntime, spec::HandlerOptions},
    paths::Paths,
    *,
};
use criscope::wire::{Body, BoxError, CriService};
use http_body_util::BodyExt;
use std::time::Duration;
#[tokio::main]
async fn main() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let sock = std::env::args().nth(1).unwrap();
    let root = std::env::args().nth(2).unwrap();
    let oci = std::env::args().nth(3).unwrap_or("runc".into());
    let paths = Paths::new(format!("{root}/root"), format!("{root}/state"));
    let node = node::detect(&node::NodeOptions {
        restrict_oom_score_adj: true,
        ..Default::default()
    })
    .unwrap();
    let mut images = ImagesConfig::new(paths.images());
    images.certs_dirs = vec!["/work/lab/certs.d".into()];
    let cgroups = node::cgroup::Hierarchies::detect()
        .unwrap()
        .make("/criscope-shims".as_ref())
        .unwrap();
    let settings = Settings {
        shim: std::env::current_exe()
            .unwrap()
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("criscope-shim"),
        shim_cgroups: cgroups
            .dirs()
            .map(|d| d.to_owned())
            .filter(|d| d.exists())
            .collect(),
        default_handler: "runc".into(),
        handlers: vec![HandlerSettings {
            name: "runc".into(),
            oci: OciRuntime::new(
                format!("/usr/bin/{oci}").replace("/usr/bin/runc", "/usr/sbin/runc"),
                paths.oci("runc"),
            ),
            options: HandlerOptions::default(),
            no_pivot: false,
            no_new_keyring: false,
            cni: None,
            recursive_read_only: true,
            user_namespaces: false,
        }],
        images,
        pinned_images: vec![],
        import_dir: None,
        cni: cni::Settings {
            conf_dir: "/work/lab/cni".into(),
            bin_dirs: vec!["/usr/lib/cni".into()],
            cache_dir: paths.cni(),
            ..Default::default()
        },
        cni_template: None,
        node,
        cdi_dirs: vec![],
        max_log_line: 16384,
        drain_exec: Some(Duration::from_secs(5)),
        ignore_image_volumes: false,
        stats_period: Duration::from_secs(10),
        paths,
    };
    let runtime = Runtime::open(settings).await.unwrap();
    let service = CriService::new(Builtin::new(
        runtime,
        tokio::runtime::Handle::current(),
        16 << 20,
    ));
    let _ = std::fs::remove_file(&sock);
    let listener = tokio::net::UnixListener::bind(&sock).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service.clone();
        tokio::spawn(async move {
            let svc = hyper::service::service_fn(move |r: http::Request<hyper::body::Incoming>| {
                let service = service.clone();
                handle(service, r)
            });
            let _ = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
                .serve_connection(hyper_util::rt::TokioIo::new(stream), svc)
                .await;
        });
    }
}

fn io(e: BoxError) -> std::io::Error {
    std::io::Error::other(e.to_string())
}
fn bx(e: hyper::Error) -> BoxError {
    Box::new(e)
}
type B = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, std::io::Error>;
fn handle(
    service: CriService,
    r: http::Request<hyper::body::Incoming>,
) -> std::pin::Pin<
    Box<dyn Future<Output = std::result::Result<http::Response<B>, std::io::Error>> + Send>,
> {
    let f = service.answer(r.map(|b| Body::boxed(b.map_err(bx))));
    Box::pin(async move {
        let r = f.await.map_err(io)?;
        Ok(r.map(|b| B::new(b.map_err(io))))
    })
}
