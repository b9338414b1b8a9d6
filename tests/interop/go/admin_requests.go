package main

import (
	"context"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
)

// awaitRoute waits until the name server tells where a topic is.
func awaitRoute(cluster *Cluster, topic string) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if queues, err := cluster.admin.FetchPublishMessageQueues(context.Background(), topic); err == nil && len(queues) > 0 {
			return
		}
	}
	panic("no route of topic " + topic)
}

// adminRequests: what the client's administrator can do: create, list and delete topics, list groups.
func adminRequests(cluster *Cluster) Outcome {
	ctx := context.Background()
	topic := cluster.createTopic("admin", 3, readWrite)
	queues, err := cluster.admin.FetchPublishMessageQueues(ctx, topic)
	must(err)
	outcome := Outcome{"queues": len(queues)}
	list, err := cluster.admin.FetchAllTopicList(ctx)
	must(err)
	outcome["listed"] = strings.Contains(strings.Join(list.TopicList, " "), topic)
	member, _ := cluster.consumer("admin", topic, tag("*"), nil)
	groups, err := cluster.admin.GetAllSubscriptionGroup(ctx, cluster.brokerAddress(), 5*time.Second)
	must(err)
	group := groups.SubscriptionGroupTable[cluster.name("admin")]
	outcome["group"] = []interface{}{group.ConsumeEnable, group.ConsumeBroadcastEnable, group.RetryQueueNums, group.RetryMaxTimes,
		group.BrokerId, group.WhichBrokerWhenConsumeSlowly}
	must(member.Shutdown())
	must(cluster.admin.DeleteTopic(ctx, admin.WithTopicDelete(topic), admin.WithBrokerAddrDelete(cluster.brokerAddress()),
		admin.WithNameSrvAddr([]string{cluster.nameServer})))
	_, err = cluster.admin.FetchPublishMessageQueues(ctx, topic)
	outcome["after it was deleted"] = cluster.remark(err)
	return outcome
}
