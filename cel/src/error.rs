//! What can go wrong with an expression, when it is compiled and when it is evaluated.

use std::borrow::Cow;

/// Why an expression can't be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The text is longer than the API allows, in bytes.
    #[error("expression is {len} bytes long, must be no more than {limit}")]
    TooLong {
        /// Its length.
        len: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// Brackets, operators or calls are nested too deeply.
    #[error("expression recursion limit exceeded: {limit}")]
    TooDeep {
        /// The most that is allowed.
        limit: usize,
    },
    /// The text is not CEL.
    #[error("compilation failed: {0}")]
    Syntax(String),
    /// It is CEL, but with an undeclared name, or types that do not go together.
    #[error("compilation failed: {0}")]
    Check(String),
    /// A constant part can't be computed.
    #[error("program instantiation failed: {0}")]
    Constant(String),
    /// The result's type is not what the expression is used for.
    #[error("{0}")]
    ResultType(String),
}

/// Why an evaluation has no result. The texts are those of Kubernetes where programs or people look for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A map lacks the key, most often a device the attribute.
    #[error("no such key: {0}")]
    NoSuchKey(Box<str>),
    /// A list has no such index.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(Box<str>),
    /// No variant of the function takes these types.
    #[error("no such overload")]
    NoSuchOverload,
    /// No variant of this function takes these types.
    #[error("no such overload: {0}")]
    NoSuchOverloadOf(Box<str>),
    /// A result does not fit 64 bits.
    #[error("integer overflow")]
    IntegerOverflow,
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A remainder of a division by zero.
    #[error("modulus by zero")]
    ModulusByZero,
    /// The evaluation costs more than the limit, or needs more time or memory than any that does not. `||`, `&&` and
    /// optional values do not absorb it.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimitExceeded,
    /// A place where Kubernetes' evaluator itself fails, so that nothing absorbs the error: versions and bytes as keys of maps
    /// or looked up in constant lists, and an error in the list that is sorted or made distinct.
    #[error("internal error: {0}")]
    Internal(Box<str>),
    /// The device has an attribute without a value or with a malformed version, so that no expression can be
    /// evaluated for it.
    #[error("{0}")]
    Device(Box<str>),
    /// The result has a type that is not asked for.
    #[error("{0}")]
    Result(Box<str>),
    /// All else: values that can't be converted, parsed, ordered and so on.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

impl EvalError {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Other(Cow::Owned(text.into()))
    }

    pub(crate) fn unhashable(type_name: &str) -> Self {
        Self::Internal(format!("runtime error: hash of unhashable type {type_name}").into())
    }

    /// Whether it ends the evaluation, whatever surrounds the place where it occurs.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::CostLimitExceeded | Self::Internal(_))
    }
}

impl From<&'static str> for EvalError {
    fn from(text: &'static str) -> Self {
        Self::Other(Cow::Borrowed(text))
    }
}
