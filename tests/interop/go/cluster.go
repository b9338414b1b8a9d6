package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const readWrite = 6

var address = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+(:\d+)?`)

// Cluster is the cluster under test, and the clients of it. Names of topics and groups get a prefix.
type Cluster struct {
	nameServer string
	prefix     string
	instances  int64
	admin      admin.Admin
	once       sync.Once
	broker     string
}

func newCluster(nameServer, prefix string) *Cluster {
	cluster := &Cluster{nameServer: nameServer, prefix: prefix}
	created, err := admin.NewAdmin(admin.WithResolver(cluster.resolver()))
	must(err)
	cluster.admin = created
	return cluster
}

// brokerAddress finds the broker: the client tells it by no call, but its send results name it by their offset ids.
func (cluster *Cluster) brokerAddress() string {
	cluster.once.Do(func() {
		sender := cluster.producer("finder")
		defer func() { must(sender.Shutdown()) }()
		sent, err := sender.SendSync(context.Background(), message(cluster.name("finder"), "where are you?"))
		must(err)
		id, err := primitive.UnmarshalMsgID([]byte(sent.OffsetMsgID))
		must(err)
		cluster.broker = fmt.Sprintf("%s:%d", id.Addr, id.Port)
	})
	return cluster.broker
}

func (cluster *Cluster) name(name string) string {
	return cluster.prefix + name
}

func (cluster *Cluster) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{cluster.nameServer})
}

// Every client is an instance of its own, as processes on different machines would be.
func (cluster *Cluster) instance() string {
	return fmt.Sprintf("%s%d", cluster.prefix, atomic.AddInt64(&cluster.instances, 1))
}

// createTopic creates a topic by request and returns its name.
func (cluster *Cluster) createTopic(name string, queues, perm int) string {
	must(cluster.create(cluster.name(name), queues, perm))
	return cluster.name(name)
}

func (cluster *Cluster) create(topic string, queues, perm int) error {
	return cluster.admin.CreateTopic(context.Background(), admin.WithTopicCreate(topic),
		admin.WithBrokerAddrCreate(cluster.brokerAddress()), admin.WithReadQueueNums(queues), admin.WithWriteQueueNums(queues),
		admin.WithPerm(perm))
}

func (cluster *Cluster) producerOptions(group string, more []producer.Option) []producer.Option {
	return append([]producer.Option{producer.WithGroupName(cluster.name(group)), producer.WithNsResolver(cluster.resolver()),
		producer.WithInstanceName(cluster.instance()), producer.WithRetry(0)}, more...)
}

// producer returns a started producer.
func (cluster *Cluster) producer(group string, more ...producer.Option) rocketmq.Producer {
	created, err := rocketmq.NewProducer(cluster.producerOptions(group, more)...)
	must(err)
	must(created.Start())
	return created
}

func (cluster *Cluster) consumerOptions(group string, more []consumer.Option) []consumer.Option {
	return append([]consumer.Option{consumer.WithGroupName(cluster.name(group)), consumer.WithNsResolver(cluster.resolver()),
		consumer.WithInstance(cluster.instance()), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, more...)
}

// consumer returns a started consumer whose messages, once handled, are in the inbox.
func (cluster *Cluster) consumer(group, topic string, selector consumer.MessageSelector, handle handler,
	more ...consumer.Option) (rocketmq.PushConsumer, *Inbox) {
	inbox := newInbox()
	created, err := rocketmq.NewPushConsumer(cluster.consumerOptions(group, more)...)
	must(err)
	must(created.Subscribe(topic, selector, inbox.listener(handle)))
	must(created.Start())
	return created, inbox
}

func tag(expression string) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
}

func message(topic, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body))
}

// remark is the text of a refusal without addresses and the prefix of this run.
func (cluster *Cluster) remark(err error) string {
	if err == nil {
		return "nothing refused"
	}
	return address.ReplaceAllString(strings.ReplaceAll(err.Error(), cluster.prefix, ""), "<address>")
}
