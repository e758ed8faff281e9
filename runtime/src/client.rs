//! The API client: where the cluster is, how requests are limited, what is corrected on the way.

use std::{path::Path, time::Duration};

use http::{Request, Uri};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt as _},
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::{ServiceBuilder, util::MapRequestLayer};

use crate::limit::{Pacing, RateLimit};

/// How long the API server may take to begin its answer to any request, watches included. It gives up on its own
/// work after 60 s at most; half of that keeps nobody waiting behind a dead connection.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read or is not one.
    #[error(
        "cannot load the kubeconfig {path}: check that the file exists, is readable and has a current context"
    )]
    Kubeconfig {
        /// The file.
        path: String,
        /// What went wrong.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// No kubeconfig was given and this is no Pod.
    #[error(
        "no --kubeconfig was given and the in-cluster configuration is not there: run in a Pod with a ServiceAccount, or pass --kubeconfig"
    )]
    InCluster(#[source] kube::config::InClusterError),
    /// The configuration cannot be used.
    #[error("cannot build an API client from the configuration")]
    Client(#[source] Box<kube::Error>),
}

/// A client for the cluster of the kubeconfig, or of the Pod that this runs in.
///
/// # Errors
/// When there is no usable configuration. The API server itself is not contacted.
pub async fn connect(kubeconfig: Option<&Path>, limit: Option<RateLimit>) -> Result<Client, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let failed = |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)?
        }
        None => Config::incluster().map_err(ConnectError::InCluster)?,
    };
    // kube would repeat a POST up to 15 times by itself; retries are the queue's business.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(10));
    let pacing = Pacing { limit, answer_within: ANSWER_WITHIN };
    let consistent = MapRequestLayer::new(consistent_initial_list);
    let failed = |error| ConnectError::Client(Box::new(error));
    if config.proxy_url.is_some() {
        let builder = ClientBuilder::try_from(config).map_err(failed)?;
        return Ok(builder.with_layer(&pacing).with_layer(&consistent).build());
    }
    let mut connector =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp()).map_err(failed)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let service = ServiceBuilder::new()
        .layer(consistent)
        .layer(pacing)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(failed)?)
        .layer(config.extra_headers_layer().map_err(failed)?)
        .map_err(tower::BoxError::from)
        .service(legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}

/// Connections that send at once, as those of client-go do. kube's own wait until the API server has acknowledged what
/// they sent before: the first request on each was answered 40 ms late.
fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector
}

/// kube starts a streaming list at resourceVersion 0, which an API server may answer from a cache that is
/// behind. A controller that starts from such a list would create again what its predecessor has just created.
/// Without a resourceVersion the list is consistent, as client-go asks for it.
pub fn consistent_initial_list(mut request: Request<Body>) -> Request<Body> {
    let uri = request.uri();
    let Some(query) = uri.query().filter(|q| q.contains("sendInitialEvents=true")) else { return request };
    let kept: Vec<&str> = query.split('&').filter(|p| *p != "resourceVersion=0").collect();
    let corrected = format!("{}?{}", uri.path(), kept.join("&"));
    let mut parts = uri.clone().into_parts();
    if let Ok(path) = corrected.parse() {
        parts.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_accepts_and_never_answers_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let silent = tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                open.push(listener.accept().await.unwrap());
            }
        });
        let folder = std::env::temp_dir().join(format!("dracm-client-{}", std::process::id()));
        std::fs::write(
            &folder,
            format!(
                "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"{url}\"}}}}]\n\
                 users: [{{name: u, user: {{token: t}}}}]\n\
                 contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
            ),
        )
        .unwrap();
        let client = connect(Some(&folder), None).await.unwrap();
        std::fs::remove_file(&folder).unwrap();
        tokio::time::pause();
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        let answer = tokio::time::timeout(ANSWER_WITHIN * 2, client.request_text(request)).await;
        assert!(answer.expect("the client itself gives up").is_err());
        silent.abort();
    }

    #[tokio::test]
    async fn connections_send_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let connection = tower::ServiceExt::oneshot(tcp(), uri).await.unwrap();
        assert!(connection.inner().nodelay().unwrap());
    }

    fn corrected(uri: &str) -> String {
        let request = Request::get(uri).body(Body::empty()).unwrap();
        consistent_initial_list(request).uri().to_string()
    }

    #[test]
    fn a_streaming_list_asks_for_a_consistent_state() {
        let uri = "/api/v1/pods?&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0";
        assert_eq!(
            corrected(uri),
            "/api/v1/pods?&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        );
    }

    #[test]
    fn other_requests_pass_unchanged() {
        for uri in
            ["/api/v1/pods?resourceVersion=0", "/api/v1/pods?watch=true&resourceVersion=07", "/healthz"]
        {
            assert_eq!(corrected(uri), uri);
        }
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let error = connect(Some(Path::new("/nowhere/kubeconfig")), None).await.err().unwrap();
        assert!(error.to_string().contains("/nowhere/kubeconfig"), "{error}");
    }
}
