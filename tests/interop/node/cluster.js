'use strict';

const { Consumer, Message, Producer } = require('ali-ons');
const Inbox = require('./inbox');

const SILENT = { debug() {}, info() {}, warn() {}, error() {} };
const QUICK = {
  pollNameServerInteval: 1000,
  heartbeatBrokerInterval: 1000,
  persistConsumerOffsetInterval: 1000,
  rebalanceInterval: 1000,
};
const READ_WRITE = 6;

/** The cluster under test, and the clients of it. Names of topics and groups get a prefix. */
class Cluster {
  constructor(nameServer, prefix) {
    this.nameServer = nameServer;
    this.prefix = prefix;
    this.instances = 0;
  }

  async start() {
    this.admin = await this.producer('admin');
    const route = await this.admin._mqClient.getDefaultTopicRouteInfoFromNameServer('TBW102', 10000);
    this.broker = route.brokerDatas[0].brokerAddrs[0];
  }

  name(name) {
    return this.prefix + name;
  }

  /** Creates a topic by the request that the client has for it, and returns its name. */
  async createTopic(name, queues, perm = READ_WRITE) {
    await this.createTopicNamed(this.name(name), queues, perm);
    return this.name(name);
  }

  async createTopicNamed(topicName, queues, perm) {
    await this.admin._mqClient.createTopic(this.broker, 'TBW102', {
      topicName,
      readQueueNums: queues,
      writeQueueNums: queues,
      perm,
      topicFilterType: 'SINGLE_TAG',
      topicSysFlag: 0,
      order: false,
    }, 10000);
  }

  /** A producer that is ready; `options` are those of ali-ons. */
  async producer(group, options = {}) {
    const producer = new Producer(this._options({ producerGroup: this.name(group), sendMsgTimeout: 10000, ...options }));
    producer.on('error', () => {}); // what a scenario looks at it receives by its calls
    await producer.ready();
    return producer;
  }

  /**
   * A consumer that begins at the first message and puts what it receives into an inbox; `handle` may say that a message
   * could not be consumed.
   */
  async consumer(group, topic, expression, { options = {}, handle = () => undefined } = {}) {
    const consumer = new Consumer(
      this._options({
        consumerGroup: this.name(group), consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', parallelConsumeLimit: 8, ...options,
      })
    );
    const inbox = new Inbox();
    consumer.on('error', error => inbox.fail(error));
    await consumer.ready();
    consumer.subscribe(topic, expression, async message => {
      inbox.add(message);
      return handle(message);
    });
    return { consumer, inbox };
  }

  /** Every client an instance of its own, as processes on different machines would be. */
  _options(options) {
    this.instances += 1;
    return {
      httpclient: {}, nameSrv: this.nameServer, logger: SILENT, instanceName: `${this.prefix}${this.instances}`,
      connectTimeout: 10000, ...QUICK, ...options,
    };
  }
}

Cluster.RETRY = Consumer.ACTION_RETRY;

/** A message with tag, keys and further properties. */
Cluster.message = (topic, body, { tags, keys, properties } = {}) => {
  const message = new Message(topic, tags, body);
  if (keys) {
    message.keys = keys;
  }
  Object.assign(message.properties, properties);
  return message;
};

module.exports = Cluster;
