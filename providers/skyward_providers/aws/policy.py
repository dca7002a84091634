"""The least permissions of `sky.AWS()`, as an IAM policy.

Calls that list take no resource. Calls that change something are allowed for what has Skyward's tag, or gets it in the
same call; launching also for the images, subnets and interfaces that a launch uses.
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

_IMAGES: Final = ["arn:aws:ec2:*::image/*", "arn:aws:ec2:*::snapshot/*"]

_STATEMENTS: Final = [
    statement(
        "Look",
        [
            "ec2:DescribeImages",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeInstances",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribeSnapshots",
            "ec2:DescribeSpotPriceHistory",
            "ec2:DescribeVolumes",
            *LOOK_AT_NETWORKS,
        ],
    ),
    statement("FindImages", ["ssm:GetParameter"], ["arn:aws:ssm:*::parameter/aws/service/*"]),
    statement(
        "CreateTagged",
        ["ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:CreateSecurityGroup", "ec2:RunInstances"],
        of_ec2("fleet", "instance", "launch-template", "network-interface", "security-group", "volume"),
        BEING_TAGGED,
    ),
    statement(
        "LaunchWith",
        ["ec2:CreateFleet", "ec2:CreateSecurityGroup", "ec2:RunInstances"],
        [
            *_IMAGES,
            *of_ec2("launch-template", "network-interface", "security-group", "subnet", "vpc"),
        ],
    ),
    statement("MakeImages", ["ec2:CreateImage"], _IMAGES, BEING_TAGGED),
    statement("MakeImagesOf", ["ec2:CreateImage"], of_ec2("instance"), TAGGED),
    statement(
        "TagWhatIsCreated",
        ["ec2:CreateTags"],
        "arn:aws:ec2:*:*:*/*",
        {
            "StringEquals": {
                "ec2:CreateAction": [
                    "CreateFleet",
                    "CreateImage",
                    "CreateLaunchTemplate",
                    "CreateSecurityGroup",
                    "RunInstances",
                ]
            }
        },
    ),
    statement(
        "ChangeTagged",
        [
            "ec2:AuthorizeSecurityGroupIngress",
            "ec2:CreateLaunchTemplateVersion",
            "ec2:DeleteLaunchTemplate",
            "ec2:DeleteSecurityGroup",
            "ec2:DeleteSnapshot",
            "ec2:DeleteVolume",
            "ec2:DeregisterImage",
            "ec2:StopInstances",
            "ec2:TerminateInstances",
        ],
        "*",
        TAGGED,
    ),
    statement(
        "FleetAndSpotRoles",
        ["iam:CreateServiceLinkedRole"],
        "*",
        {"StringEquals": {"iam:AWSServiceName": ["ec2fleet.amazonaws.com", "spot.amazonaws.com"]}},
    ),
]


def policy_of(instance_profile: str | None) -> str:
    """Return the policy in JSON, ready to paste; the role of an instance profile is taken to have its name."""
    role = None if instance_profile is None else instance_profile.replace(":instance-profile/", ":role/")
    return policy_text([*_STATEMENTS, *passing("ec2.amazonaws.com", role)])
