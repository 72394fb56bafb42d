"""S3 servers on loopback: moto with S3 Express in front of it, and SeaweedFS.

What runs where: `double` is a server in this process whose behaviour tests turn at will, `weed` a real
one in a process of its own. Nothing here is imported by sgkv itself.
"""

ACCESS_KEY, SECRET_KEY = "sgkv-test-access", "sgkv-test-secret-0123456789"
REGION = "us-east-1"
DIRECTORY_BUCKET = "sgkv--use1-az4--x-s3"
BUCKET = "sgkv-test"


def tier_settings(endpoint: str, bucket: str = BUCKET, **settings: object) -> dict[str, object]:
    """A tier of a configuration over one of these servers."""
    known = {"region": REGION, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    return {"type": "s3", "bucket": bucket, "endpoint": endpoint, **known, **settings}
