//! An in-memory API server for the kinds of Dynamic Resource Allocation.
//!
//! [`Server`] keeps objects as JSON and answers as kube-apiserver does, as far as a controller can tell:
//! resourceVersions and conflicts, server-side apply, patches, finalizers and graceful deletion, status subresources,
//! lists in pages, watches with bookmarks and their end, defaulting and the validation that controllers run into.
//! `e2e/tests/api_contract.rs` holds it to that: one list of requests runs against both servers.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # let _guard = runtime.enter();
//! use dra_embedded::Server;
//! let server = Server::new(1, "2026-01-01T00:00:00Z".parse()?);
//! let client: kube::Client = server.client();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Server::load`] takes objects of another server as they are, so that time can go on from a snapshot.
//! [`Faults`] make a connection as bad as the seed says. Nothing here is random otherwise, and time is tokio's.
//!
//! ```text
//! kube::Client ─▶ server::Connection ──▶ call ──▶ verbs ──▶ state ──▶ watch ─▶ kube::Client
//!                     ▲ faults           kinds, rules (what each kind is), patch, managers, select
//! ```
//!
//! What is left out: authorisation, admission webhooks, quota, dry run, `managedFields` in answers (they are kept
//! inside), conversion between versions beyond `apiVersion`, validation of what no controller writes, types of fields and
//! unknown fields outside of `metadata` (they are kept as they come, unless a POST or PUT asks for `fieldValidation=Strict`),
//! protobuf.

mod call;
mod discovery;
mod faults;
mod fields;
mod formats;
mod kinds;
mod load;
mod managers;
mod object;
mod patch;
mod refusal;
mod rules;
mod select;
mod server;
mod state;
mod verbs;
mod watch;

pub use faults::{Faults, Rates};
pub use fields::unknown_fields;
pub use server::{AnswerBody, BeforeAndAfter, Connection, Exchange, Observer, Server};
