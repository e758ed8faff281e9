//! Which kinds the API server serves.

use dra_api::Kind;
use http::Request;
use kube::Client;

/// True when the API server serves the kind.
///
/// # Errors
/// When it gives no usable answer.
pub(crate) async fn is_served(client: &Client, kind: &Kind) -> Result<bool, kube::Error> {
    let root = if kind.group.is_empty() { "/api/" } else { "/apis/" };
    let request = Request::get(format!("{root}{}", kind.api_version()))
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    match client.request::<Resources>(request).await {
        Ok(list) => Ok(list.resources.iter().any(|r| r.name == kind.plural)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

#[derive(serde::Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(serde::Deserialize)]
struct Resource {
    name: String,
}
