"""Permissions that each request to a name server requires with access control. Name servers of Apache RocketMQ require
none. If their headers have a ``RocketMQAction`` (``header.namesrv``), it is in this table.

Each row has a request about the broker ``broker-a`` of cluster ``c``; ``broker-b`` belongs to cluster ``d``.
"""

from __future__ import annotations

from raptormq.protocol.codes import RequestCode
from tests.namesrv.test_service import ADDRESS, registration_body
from tests.rights import Row, Table

OTHER_ADDRESS = "10.0.0.2:10911"
USER = "bob"
RESOURCES = {
    "cluster": "Cluster:c",
    "other cluster": "Cluster:d",
    "every cluster": "Cluster:*",
    "topic": "Topic:t",
    "group": "Group:g",
}

C = RequestCode
GET, UPDATE = {"cluster": "Get"}, {"cluster": "Update"}
GET_EVERY, UPDATE_EVERY = {"every cluster": "Get"}, {"every cluster": "Update"}
BOTH = {"cluster": "Update", "other cluster": "Update"}
BROKER: dict[str, object] = {
    "brokerName": "broker-a",
    "brokerAddr": ADDRESS,
    "clusterName": "c",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}
OTHER_BROKER = BROKER | {"brokerName": "broker-b", "brokerAddr": OTHER_ADDRESS, "clusterName": "d"}
TOPICS = registration_body(("t", "u"))
KEY: dict[str, object] = {"namespace": "n", "key": "k"}
SUBJECT: dict[str, object] = {"subject": f"User:{USER}"}
PASSWORD = b'{"password":"x"}'
ACL = b'{"policies":[{"entries":[{"resource":"Topic:x","actions":["Pub"],"decision":"Allow"}]}]}'
APACHE = "nothing"
TAKES_A_PLACE = "it would replace that cluster's broker"
CLIENTS_ASK = "with the default lists of codes, not even a signature is required"
SUPER = "super users can only be managed by super users"

ROWS = (
    Row(C.REGISTER_BROKER, "register a broker", UPDATE, APACHE, "", BROKER, TOPICS),
    Row(C.REGISTER_BROKER, "register a broker with the name of a broker of another cluster", BOTH, APACHE,
        TAKES_A_PLACE, BROKER | {"brokerName": "broker-b"}, TOPICS),
    Row(C.REGISTER_BROKER, "register a broker with the address of a broker of another cluster", BOTH, APACHE,
        TAKES_A_PLACE, BROKER | {"brokerAddr": OTHER_ADDRESS}, TOPICS),
    Row(C.UNREGISTER_BROKER, "unregister a broker", UPDATE, APACHE, "", BROKER),
    Row(C.UNREGISTER_BROKER, "unregister a broker of another cluster than the request names", BOTH, APACHE, "",
        OTHER_BROKER | {"clusterName": "c"}),
    Row(C.BROKER_HEARTBEAT, "heartbeat of a broker", UPDATE, APACHE, "", BROKER),
    Row(C.QUERY_DATA_VERSION, "check whether a broker must register again", GET, APACHE, "", BROKER,
        b'{"counter":1,"stateVersion":0,"timestamp":1}'),
    Row(C.WIPE_WRITE_PERM_OF_BROKER, "remove a broker's write permission", UPDATE, APACHE, "",
        {"brokerName": "broker-a"}),
    Row(C.WIPE_WRITE_PERM_OF_BROKER, "remove it from an unknown broker", UPDATE_EVERY, APACHE, "",
        {"brokerName": "nobody"}),
    Row(C.ADD_WRITE_PERM_OF_BROKER, "restore a broker's write permission", UPDATE, APACHE, "",
        {"brokerName": "broker-a"}),
    Row(C.GET_BROKER_MEMBER_GROUP, "members of a broker group", GET, APACHE, "",
        {"brokerName": "broker-a", "clusterName": "c"}),
    Row(C.GET_TOPICS_BY_CLUSTER, "topics of a cluster", GET, APACHE, "", {"cluster": "c"}),
    Row(C.GET_ROUTEINFO_BY_TOPIC, "route of a topic", {"topic": "Pub or Sub or Get"}, APACHE, CLIENTS_ASK,
        {"topic": "t"}),
    Row(C.GET_ROUTEINFO_BY_TOPIC, "route of a retry topic", {"group": "Sub or Get"}, APACHE, CLIENTS_ASK,
        {"topic": "%RETRY%g"}),
    Row(C.GET_BROKER_CLUSTER_INFO, "all brokers", GET_EVERY, APACHE, CLIENTS_ASK),
    Row(C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "all topics", GET_EVERY, APACHE),
    Row(C.GET_SYSTEM_TOPIC_LIST_FROM_NS, "system topics", GET_EVERY, APACHE),
    Row(C.GET_UNIT_TOPIC_LIST, "unit topics", GET_EVERY, APACHE),
    Row(C.GET_HAS_UNIT_SUB_TOPIC_LIST, "topics with unit subscriptions", GET_EVERY, APACHE),
    Row(C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "other topics with unit subscriptions", GET_EVERY, APACHE),
    Row(C.DELETE_TOPIC_IN_NAMESRV, "delete a topic", {"topic": "Delete"}, APACHE, "like 215 on the brokers",
        {"topic": "t"}),
    Row(C.DELETE_TOPIC_IN_NAMESRV, "delete a topic of one cluster", {"topic": "Delete"}, APACHE,
        "the named cluster does not lower the requirement", {"topic": "t", "clusterName": "c"}),
    Row(C.DELETE_TOPIC_IN_NAMESRV, "delete a retry topic", {"group": "Delete"}, APACHE, "like 215 on the brokers",
        {"topic": "%RETRY%g"}),
    Row(C.REGISTER_TOPIC_IN_NAMESRV, "set the route of a topic", UPDATE_EVERY, APACHE, "", {"topic": "new"},
        b'{"queueDatas":[],"brokerDatas":[]}'),
    Row(C.PUT_KV_CONFIG, "set a key-value entry", UPDATE_EVERY, APACHE, "", KEY | {"value": "v"}),
    Row(C.GET_KV_CONFIG, "a key-value entry", GET_EVERY, APACHE, "", KEY),
    Row(C.GET_KVLIST_BY_NAMESPACE, "key-value entries", GET_EVERY, APACHE, "", {"namespace": "n"}),
    Row(C.DELETE_KV_CONFIG, "delete a key-value entry", UPDATE_EVERY, APACHE, "", KEY),
    Row(C.UPDATE_NAMESRV_CONFIG, "change settings", UPDATE_EVERY, APACHE,
        "settings of access control cannot be changed by requests", body=b"orderMessageEnable=true"),
    Row(C.GET_NAMESRV_CONFIG, "current settings", GET_EVERY, APACHE),
    Row(C.AUTH_CREATE_USER, "create a user", UPDATE_EVERY, "not available", SUPER, {"username": "carol"}, PASSWORD),
    Row(C.AUTH_UPDATE_USER, "change a user", UPDATE_EVERY, "not available", SUPER, {"username": USER}, PASSWORD),
    Row(C.AUTH_DELETE_USER, "delete a user", UPDATE_EVERY, "not available", SUPER, {"username": "carol"}),
    Row(C.AUTH_GET_USER, "one user", GET_EVERY, "not available", "only a super user gets the password",
        {"username": USER}),
    Row(C.AUTH_LIST_USER, "users", GET_EVERY, "not available", "only super users get passwords"),
    Row(C.AUTH_CREATE_ACL, "create the permissions of a user", UPDATE_EVERY, "not available", "", SUBJECT, ACL),
    Row(C.AUTH_UPDATE_ACL, "change the permissions of a user", UPDATE_EVERY, "not available", "", SUBJECT, ACL),
    Row(C.AUTH_GET_ACL, "permissions of a user", GET_EVERY, "not available", "", SUBJECT),
    Row(C.AUTH_LIST_ACL, "permissions of all users", GET_EVERY, "not available"),
    Row(C.AUTH_DELETE_ACL, "delete the permissions of a user", UPDATE_EVERY, "not available", "", SUBJECT),
)  # fmt: skip

TABLE = Table(ROWS, RESOURCES)
