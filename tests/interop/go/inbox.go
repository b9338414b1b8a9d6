package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const patience = 60 * time.Second

type handler func(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult

// Received is one delivery, as it was when it came: the client changes messages that it sends back.
type Received struct {
	body, tags, keys, topic string
	properties              map[string]string
	reconsumed              int32
	queue                   int
	at                      time.Time
}

// Inbox holds what consumers received. Delivery is at least once.
type Inbox struct {
	changed  *sync.Cond
	received []Received
}

func newInbox() *Inbox {
	return &Inbox{changed: sync.NewCond(&sync.Mutex{})}
}

func (inbox *Inbox) listener(handle handler) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		for _, each := range messages {
			inbox.add(each)
			if handle != nil {
				result = handle(ctx, each)
			}
		}
		return result, nil
	}
}

func (inbox *Inbox) add(message *primitive.MessageExt) {
	one := Received{body: string(message.Body), tags: message.GetTags(), keys: message.GetKeys(), topic: message.Topic,
		properties: map[string]string{}, reconsumed: message.ReconsumeTimes, queue: message.Queue.QueueId, at: time.Now()}
	for name, value := range message.GetProperties() {
		one.properties[name] = value
	}
	inbox.changed.L.Lock()
	defer inbox.changed.L.Unlock()
	inbox.received = append(inbox.received, one)
	inbox.changed.Broadcast()
}

// until waits for a condition, which is called with the lock held; it fails after a minute.
func (inbox *Inbox) until(what string, condition func() bool) {
	late := false
	timer := time.AfterFunc(patience, func() {
		inbox.changed.L.Lock()
		defer inbox.changed.L.Unlock()
		late = true
		inbox.changed.Broadcast()
	})
	defer timer.Stop()
	inbox.changed.L.Lock()
	defer inbox.changed.L.Unlock()
	for !condition() {
		if late {
			panic(fmt.Sprintf("waited in vain for %s; %d messages came", what, len(inbox.received)))
		}
		inbox.changed.Wait()
	}
}

// untilBodies waits for so many different bodies.
func (inbox *Inbox) untilBodies(count int) {
	inbox.until(fmt.Sprintf("%d bodies", count), func() bool { return len(bodies(inbox.received)) >= count })
}

func (inbox *Inbox) all() []Received {
	inbox.changed.L.Lock()
	defer inbox.changed.L.Unlock()
	return append([]Received(nil), inbox.received...)
}

// bodies are the different ones, in order.
func bodies(received []Received) []string {
	return distinct(received, func(one Received) string { return one.body })
}

func distinct(received []Received, field func(Received) string) []string {
	seen := map[string]bool{}
	for _, one := range received {
		seen[field(one)] = true
	}
	return sortedKeys(seen)
}

func sortedKeys(seen map[string]bool) []string {
	keys := []string{}
	for key := range seen {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// propertyNames are those of a delivery, without what this client notes itself.
func propertyNames(one Received) string {
	seen := map[string]bool{}
	for name := range one.properties {
		seen[name] = name != primitive.PropertyConsumeStartTime
	}
	delete(seen, primitive.PropertyConsumeStartTime)
	return strings.Join(sortedKeys(seen), " ")
}
