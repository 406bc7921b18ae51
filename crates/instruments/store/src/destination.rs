//! Store address as users write it. Never contains a secret.

use crate::{Error, Result};
use std::path::PathBuf;

/// A folder, or a place in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Folder(PathBuf),
    S3 { bucket: String, prefix: String },
}

impl Destination {
    /// `s3://bucket/prefix`, or the path of a folder.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(place) = text.strip_prefix("s3://") {
            let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
            if bucket.is_empty() || bucket.contains(['@', ':', '?']) {
                // Not repeated: somebody may have written a key into it.
                return Err(Error::Destination(
                    "that names no bucket: write s3://BUCKET/PREFIX; endpoint and credentials come from the environment \
                     (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...) or a profile (AWS_PROFILE)"
                        .into(),
                ));
            }
            let prefix = prefix.trim_matches('/').to_owned();
            return Ok(Self::S3 { bucket: bucket.to_owned(), prefix });
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(Error::Destination(format!(
                "{scheme}:// is no store that toll knows: a folder, or s3://"
            )));
        }
        Ok(Self::Folder(PathBuf::from(text)))
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_folder_or_a_place_in_a_bucket_and_names_no_secret() {
        let told = |text: &str| Destination::parse(text).map(|place| place.to_string());
        assert_eq!(told("s3://b/a/c/").unwrap(), "s3://b/a/c");
        assert_eq!(told("s3://b").unwrap(), "s3://b");
        assert_eq!(Destination::parse("/a b").unwrap(), Destination::Folder("/a b".into()));
        for refused in ["s3://", "s3:///x", "s3://key:secret@b/x", "ftp://x/y"] {
            let error = told(refused).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
