"""The least permissions of `sky.Fargate()`, as an IAM policy.

Calls that list take no resource. Calls that change something are allowed for what has Skyward's tag, or gets it in the
same call.
"""

from typing import Final

from skyward_providers.aws_account.policy import (
    BEING_TAGGED,
    LOOK_AT_NETWORKS,
    TAGGED,
    of_ec2,
    passing,
    policy_text,
    statement,
)

__all__ = ["policy_of"]

_STATEMENTS: Final = (
    statement(
        "Look",
        [
            *LOOK_AT_NETWORKS,
            "ec2:DescribeNetworkInterfaces",
            "ecs:DescribeClusters",
            "ecs:DescribeTaskDefinition",
            "ecs:DescribeTasks",
            "ecs:ListClusters",
            "ecs:ListTaskDefinitionFamilies",
            "ecs:ListTaskDefinitions",
            "ecs:ListTasks",
        ],
    ),
    statement("CreateTagged", ["ecs:CreateCluster", "ecs:RegisterTaskDefinition"], "*", BEING_TAGGED),
    statement("LaunchTagged", ["ecs:RunTask"], "*", BEING_TAGGED),
    statement(
        "TagWhatIsCreated",
        ["ecs:TagResource"],
        "*",
        {"StringEquals": {"ecs:CreateAction": ["CreateCluster", "RegisterTaskDefinition", "RunTask"]}},
    ),
    statement("ChangeTagged", ["ecs:DeleteCluster", "ecs:DeleteTaskDefinitions", "ecs:StopTask"], "*", TAGGED),
    statement("Deregister", ["ecs:DeregisterTaskDefinition"]),  # IAM cannot limit it to resources
    statement("CreateGroups", ["ec2:CreateSecurityGroup"], of_ec2("security-group"), BEING_TAGGED),
    statement("CreateGroupsIn", ["ec2:CreateSecurityGroup"], of_ec2("vpc")),
    statement(
        "TagGroups",
        ["ec2:CreateTags"],
        of_ec2("security-group"),
        {"StringEquals": {"ec2:CreateAction": ["CreateSecurityGroup"]}},
    ),
    statement("ChangeGroups", ["ec2:AuthorizeSecurityGroupIngress", "ec2:DeleteSecurityGroup"], "*", TAGGED),
    statement(
        "RoleOfECS",
        ["iam:CreateServiceLinkedRole"],
        "*",
        {"StringEquals": {"iam:AWSServiceName": "ecs.amazonaws.com"}},
    ),
)


def policy_of(*roles: str | None) -> str:
    """Return the policy in JSON, ready to paste; `roles` are those that tasks are given."""
    return policy_text([*_STATEMENTS, *passing("ecs-tasks.amazonaws.com", *roles)])
