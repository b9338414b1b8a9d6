"""What each request to a name server needs with access control on. Those of Apache RocketMQ ask for nothing; where
their headers have a ``RocketMQAction`` (``header.namesrv``), it is the one of this table.

Each row has a request about the broker ``broker-a`` of cluster ``c``; ``broker-b`` is of cluster ``d``.
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
TAKES_A_PLACE = "it would take the place of that cluster's broker"
CLIENTS_ASK = "not even a signature is needed unless the settings have other lists of codes than the defaults"
SUPER = "a super user is for super users alone"

ROWS = (
    Row(C.REGISTER_BROKER, "register a broker", UPDATE, APACHE, "", BROKER, TOPICS),
    Row(C.REGISTER_BROKER, "register a broker by the name of one of another cluster", BOTH, APACHE, TAKES_A_PLACE,
        BROKER | {"brokerName": "broker-b"}, TOPICS),
    Row(C.REGISTER_BROKER, "register a broker by the address of one of another cluster", BOTH, APACHE, TAKES_A_PLACE,
        BROKER | {"brokerAddr": OTHER_ADDRESS}, TOPICS),
    Row(C.UNREGISTER_BROKER, "unregister a broker", UPDATE, APACHE, "", BROKER),
    Row(C.UNREGISTER_BROKER, "unregister a broker of another cluster than it says", BOTH, APACHE, "",
        OTHER_BROKER | {"clusterName": "c"}),
    Row(C.BROKER_HEARTBEAT, "heartbeat of a broker", UPDATE, APACHE, "", BROKER),
    Row(C.QUERY_DATA_VERSION, "does a broker have to register again", GET, APACHE, "", BROKER,
        b'{"counter":1,"stateVersion":0,"timestamp":1}'),
    Row(C.WIPE_WRITE_PERM_OF_BROKER, "take a broker's write permission", UPDATE, APACHE, "",
        {"brokerName": "broker-a"}),
    Row(C.WIPE_WRITE_PERM_OF_BROKER, "take it from a broker that is not known", UPDATE_EVERY, APACHE, "",
        {"brokerName": "nobody"}),
    Row(C.ADD_WRITE_PERM_OF_BROKER, "give it back", UPDATE, APACHE, "", {"brokerName": "broker-a"}),
    Row(C.GET_BROKER_MEMBER_GROUP, "members of a broker group", GET, APACHE, "",
        {"brokerName": "broker-a", "clusterName": "c"}),
    Row(C.GET_TOPICS_BY_CLUSTER, "topics of a cluster", GET, APACHE, "", {"cluster": "c"}),
    Row(C.GET_ROUTEINFO_BY_TOPIC, "where a topic is", {"topic": "Pub or Sub or Get"}, APACHE, CLIENTS_ASK,
        {"topic": "t"}),
    Row(C.GET_ROUTEINFO_BY_TOPIC, "where a retry topic is", {"group": "Sub or Get"}, APACHE, CLIENTS_ASK,
        {"topic": "%RETRY%g"}),
    Row(C.GET_BROKER_CLUSTER_INFO, "which brokers there are", GET_EVERY, APACHE, CLIENTS_ASK),
    Row(C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "all topics", GET_EVERY, APACHE),
    Row(C.GET_SYSTEM_TOPIC_LIST_FROM_NS, "system topics", GET_EVERY, APACHE),
    Row(C.GET_UNIT_TOPIC_LIST, "unit topics", GET_EVERY, APACHE),
    Row(C.GET_HAS_UNIT_SUB_TOPIC_LIST, "topics with unit subscriptions", GET_EVERY, APACHE),
    Row(C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "other topics with unit subscriptions", GET_EVERY, APACHE),
    Row(C.DELETE_TOPIC_IN_NAMESRV, "forget a topic", {"topic": "Delete"}, APACHE, "as 215 on its brokers",
        {"topic": "t"}),
    Row(C.DELETE_TOPIC_IN_NAMESRV, "forget a topic of one cluster", {"topic": "Delete"}, APACHE,
        "not less for the cluster that it names", {"topic": "t", "clusterName": "c"}),
    Row(C.DELETE_TOPIC_IN_NAMESRV, "forget a retry topic", {"group": "Delete"}, APACHE, "as 215 on its brokers",
        {"topic": "%RETRY%g"}),
    Row(C.REGISTER_TOPIC_IN_NAMESRV, "set the route of a topic", UPDATE_EVERY, APACHE, "", {"topic": "new"},
        b'{"queueDatas":[],"brokerDatas":[]}'),
    Row(C.PUT_KV_CONFIG, "set a key-value entry", UPDATE_EVERY, APACHE, "", KEY | {"value": "v"}),
    Row(C.GET_KV_CONFIG, "a key-value entry", GET_EVERY, APACHE, "", KEY),
    Row(C.GET_KVLIST_BY_NAMESPACE, "key-value entries", GET_EVERY, APACHE, "", {"namespace": "n"}),
    Row(C.DELETE_KV_CONFIG, "delete a key-value entry", UPDATE_EVERY, APACHE, "", KEY),
    Row(C.UPDATE_NAMESRV_CONFIG, "change settings", UPDATE_EVERY, APACHE,
        "those of access control are changed by no request", body=b"orderMessageEnable=true"),
    Row(C.GET_NAMESRV_CONFIG, "settings in force", GET_EVERY, APACHE),
    Row(C.AUTH_CREATE_USER, "create a user", UPDATE_EVERY, "not there", SUPER, {"username": "carol"}, PASSWORD),
    Row(C.AUTH_UPDATE_USER, "change a user", UPDATE_EVERY, "not there", SUPER, {"username": USER}, PASSWORD),
    Row(C.AUTH_DELETE_USER, "delete a user", UPDATE_EVERY, "not there", SUPER, {"username": "carol"}),
    Row(C.AUTH_GET_USER, "one user", GET_EVERY, "not there", "the password is for super users alone",
        {"username": USER}),
    Row(C.AUTH_LIST_USER, "users", GET_EVERY, "not there", "the passwords are for super users alone"),
    Row(C.AUTH_CREATE_ACL, "create what a user may do", UPDATE_EVERY, "not there", "", SUBJECT, ACL),
    Row(C.AUTH_UPDATE_ACL, "change what a user may do", UPDATE_EVERY, "not there", "", SUBJECT, ACL),
    Row(C.AUTH_GET_ACL, "what a user may do", GET_EVERY, "not there", "", SUBJECT),
    Row(C.AUTH_LIST_ACL, "what users may do", GET_EVERY, "not there"),
    Row(C.AUTH_DELETE_ACL, "delete what a user may do", UPDATE_EVERY, "not there", "", SUBJECT),
)  # fmt: skip

TABLE = Table(ROWS, RESOURCES)
