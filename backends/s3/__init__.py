"""The s3 tier: a bucket of S3, S3 Express One Zone, or of anything that speaks their protocol."""

try:
    import botocore  # noqa: F401 - said here once, for every module below
except ImportError as error:
    raise ImportError("a tier of type s3 needs boto3: pip install 'sgkv[s3]'") from error

from sgkv.backends.s3.backend import S3Backend
from sgkv.backends.s3.options import S3Options

__all__ = ["S3Backend", "S3Options"]
