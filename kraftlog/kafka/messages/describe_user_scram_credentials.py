"""DescribeUserScramCredentials, API key 50, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, array, int8, int16, int32, string


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    users: tuple[UserName, ...] | None = array(UserName, null=True)


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(null=True)
    credential_infos: tuple[CredentialInfo, ...] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=True)
    results: tuple[DescribeUserScramCredentialsResult, ...] = array(DescribeUserScramCredentialsResult)
