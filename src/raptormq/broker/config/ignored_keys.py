"""RocketMQ's broker keys that have no effect in this broker.

Most of them configure Java threads, memory, or features that are invisible to clients. They are accepted silently, so
an existing ``broker.conf`` works unchanged. Values that enable an unsupported guarantee are refused
(:func:`refuse_unsupported`). Source: ``BrokerConfig``, ``MessageStoreConfig``, ``NettyServerConfig``,
``NettyClientConfig`` and ``AuthConfig`` of Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping

from raptormq.config_file import parse_bool, parse_setting
from raptormq.errors import ConfigError

_BROKER = """
    accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums ackThreadPoolQueueCapacity
    adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity allowRecallWhenBrokerNotWriteable appendAckAsync
    appendCkAsync asyncSendEnable autoDeleteUnusedStats autoMessageVersionOnTopicLen brokerConfigPath
    brokerElectionPriority brokerFastFailureEnable brokerHeartbeatInterval brokerIP2
    brokerNotActiveTimeoutMillis broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond
    bitMapLengthConsumeQueueExt cleanOfflineBrokerInterval clientManageThreadPoolNums
    clientManagerThreadPoolQueueCapacity commercialBaseCount commercialBigCount commercialEnable commercialSizePerMsg
    commercialTimerCount commercialTransCount compatibleWithOldNameSrv compressedRegister
    configManagerVersion consumerFallbehindThreshold consumerManageThreadPoolNums
    consumerManagerThreadPoolQueueCapacity consumerOffsetUpdateVersionStep controllerAddr
    controllerHeartBeatTimeoutMills defaultMessageRequestMode defaultPopShareQueueNum delayOffsetUpdateVersionStep
    disableConsumeIfConsumerReadSlowly enableBroadcastOffsetStore enableCalcFilterBitMap enableConsumeQueueExt
    enableDetailStat enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease
    enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold
    enableRemoteEscape enableSingleTopicRegister enableSkipLongAwaitingAck enableSlaveActingMaster
    enableSplitRegistration endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
    expectConsumerNumUseFilter fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup
    fetchNamesrvAddrByAddressServer fetchNamesrvAddrByDnsLookup filterDataCleanTimeSpan filterSupportRetry
    flushConsumerOffsetHistoryInterval forceRegister forwardTimeout heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode isolateLogEnable litePullMessageThreadPoolNums
    litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums
    loadBalanceThreadPoolQueueCapacity lockInStrictMode maxErrorRateOfBloomFilter maxPopPollingSize messageStorePlugIn
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
    metricsExporterType metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
    metricsOtelCardinalityLimit msgTraceTopicName popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
    popCkStayBufferTimeOut popPollingMapSize popPollingSize popResponseReturnActualRetryTopic
    processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
    realTimeNotifyConsumerChange recoverConcurrently recoverThreadPoolNums
    rejectPullConsumerEnable replyThreadPoolQueueCapacity reviveAckWaitMs
    reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rocketmqHome sendHeartbeatTimeoutMillis
    sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverLoadBalancerEnable skipPreOnline
    startAcceptSendRequestTimeStamp subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
    syncBrokerMetadataPeriod syncControllerMetadataPeriod
    transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
    transferMsgByHeap useStaticSubscription waitTimeMillsInAckQueue
    waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
    waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
"""

_BROKER_5_5 = """
    enableConnectionMetrics enableLagAndDlqMetrics enableLiteEventMode enableLitePopLog enableMessageStoreMetrics
    enablePopMetrics enableRemotingMetrics enableRequestMetrics enableStatsMetrics enableTransactionMetrics
    liteEventCheckInterval liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
    liteLagCountMetricsEnable liteLagLatencyCollectEnable liteLagLatencyMetricsEnable liteLagLatencyTopK
    liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills liteTtlCheckInterval maxClientEventCount
    maxLiteSubscriptionCount metricsExportBatchMaxDataPoints minLiteTTl persistConsumerOffsetIncrementally
    popPollingMapExpireTimeSeconds popReviveConcurrency popReviveSkipIfGroupAbsent
    transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity
    useSeparateRetryQueue useSingleRocksDBForAllConfigs
"""

_STORE = """
    allAckInSyncStateSet asyncLearner
    batchDispatchRequestThreadPoolNums bottomMostCompressionTypeForConsumeQueueStore checkSyncStateSetPeriod
    cleanFileForciblyEnable coldDataFlowControlEnable coldDataScanEnable commitCommitLogLeastPages
    commitCommitLogThoroughInterval commitIntervalCommitLog compactionCqMappedFileSize compactionMappedFileSize
    compactionScheduleInternal compactionThreadNum correctLogicMinOffsetForceInterval
    correctLogicMinOffsetSleepInterval debugLockEnable defaultQueryMaxNum deleteCommitLogFilesInterval
    deleteConsumeQueueFilesInterval deleteFileBatchMax destroyMapedFileIntervalForcibly dispatchCqCacheNum
    dispatchCqThreads dispatchFromSenderThread duplicationEnable diskFallRecorded enableAsyncReput
    enableAutoInSyncReplicas enableBatchPush enableCleanExpiredOffset
    enableCompaction enableControllerInDeleteMode enableLmq enableLmqQuota enableMultiDispatch enableRocksDBLog
    enableRecordBackTrace enableScheduleAsyncDeliver enableScheduleMessageStats enableTimerMetricsCollect
    enabledAppendPropCRC encodeCompactionPosition fastFailIfNoBufferInStorePool flushCommitLogLeastPages
    flushCommitLogThoroughInterval
    flushCommitLogTimed flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushDelayOffsetInterval
    flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile forceVerifyPropCRC haFlowControlEnable
    haMaxTimeSlaveNotCatchup
    isEnableBatchPush
    logWhenTimerIndexEmpty lowerWriteThreshold mappedFileSizeConsumeQueueExt
    mappedFileSizeTimerLog maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan
    maxFilterMessageSize maxLmqConsumeQueueNum maxMsgsNumBatch maxOffsetMap
    maxRecoveryCommitlogFiles maxSlaveResendLength maxTopicLength memTableFlushIntervalMs messageCRCCheck
    messageIndexSafe messageVersionOnTopicLen minInSyncReplicas multiDispatchNum
    notifyMessageArriveInBatch offsetCheckInSlave osPageCacheBusyTimeOutMills putMsgIndexHightWater
    readOnlyCommitLogStorePaths readUnCommitted recheckReputOffsetFromCq redeleteHangedFileInterval
    rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency sampleCountThreshold sampleSteps
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable
    sslEnable storePathDLedgerCommitLog storePathEpochFile storePathBrokerIdentity storeType
    syncControllerMetadataPeriod syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerCongestNumEachSlot
    timerEnableCheckMetrics timerEnableDisruptor timerFlushIntervalMs timerGetMessageThreadNum
    timerInterceptDelayLevel timerMetricSmallThreshold timerProgressLogIntervalMs
    timerPutMessageThreadNum timerRocksDBEnable timerRollWindowSlot timerSkipUnknownError timerStopDequeue
    timerStopEnqueue timerWarmEnable topicQueueLockNum totalReplicas transientStorePoolEnable
    transientStorePoolSize travelCqFileNumWhenGetMessage useABSLock useReentrantLockWhenPutMessage useScheduledPurge
    useWatermark warmMapedFileEnable writeWithoutMmap
"""

_STORE_5_5 = """
    checkCommitLogOffsetOnRecover combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
    combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType combineCQUseRocksdbForLmq commitLogRecoverMaxNum
    enableAcceleratedRecovery enableLogConsumeQueueRepeatedlyBuildWhenRecover enableRunningFlagsInFlush
    indexFileReadEnable indexFileWriteEnable indexRocksDBEnable iteratorWhenUseRocksdbConsumeQueue
    maxRocksDBIndexQueryDays sharedByteBufferNum timerRecallToTimeWheelEnable timerRecallToTimelineEnable
    timerReputServiceCorePoolSize timerReputServiceMaxPoolSize timerReputServiceQueueCapacity
    timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours
    timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
    transRocksDBEnable transWriteOriginTransHalfEnable useSeparateStorePathForRocksdbCQ
"""

_NETWORK = """
    disableNettyWorkerGroup enableShutdownGracefully enableTransparentRetry serverAsyncSemaphoreValue
    serverCallbackExecutorThreads serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize
    serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds useEpollNativeSelector
    writeBufferHighWaterMark writeBufferLowWaterMark clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
    connectTimeoutMillis
"""

_SECURITY = """
    aclEnable authConfigPath authStrategyCacheEnable authenticationMetadataProvider authenticationProvider
    authenticationStrategy authorizationMetadataProvider authorizationProvider authorizationStrategy
"""

_REFUSED_WHEN_TRUE = ("enableControllerMode", "aclEnable", "migrateAuthFromV1Enabled")
"""Keys of features that this version does not support."""

_READ_ONLY_PATHS = "readOnlyCommitLogStorePaths"
"""More folders of the commit log (``MultiPathMappedFileQueue``)."""

_HALVES_IN_ROCKSDB, _HALVES_IN_LOG = "transRocksDBEnable", "transWriteOriginTransHalfEnable"

_LISTS = _BROKER, _BROKER_5_5, _STORE, _STORE_5_5, _NETWORK, _SECURITY
IGNORED_KEYS = frozenset([*" ".join(_LISTS).split(), *_REFUSED_WHEN_TRUE])


def refuse_unsupported(pairs: Mapping[str, str]) -> None:
    """Refuse settings that enable controller mode or the access control of RocketMQ 4, and settings with which
    messages are where this broker does not read them: halves only in RocksDB, more folders of the commit log. Booleans
    are case-insensitive, as in Java.

    Raises:
        ConfigError: a refused value is set, or a value is invalid.
    """
    for key in _REFUSED_WHEN_TRUE:
        if key in pairs and parse_setting(key, pairs[key], parse_bool):
            raise _unsupported(key, pairs[key])
    if pairs.get(_READ_ONLY_PATHS):
        raise ConfigError(
            f"setting {_READ_ONLY_PATHS} = {pairs[_READ_ONLY_PATHS]!r} is not supported: stop the server, move the"
            " files of these folders into that of storePathCommitLog, and remove the setting"
        )
    in_rocksdb = parse_setting(_HALVES_IN_ROCKSDB, pairs.get(_HALVES_IN_ROCKSDB, "false"), parse_bool)
    if in_rocksdb and not parse_setting(_HALVES_IN_LOG, pairs.get(_HALVES_IN_LOG, "true"), parse_bool):
        raise _unsupported(_HALVES_IN_LOG, pairs[_HALVES_IN_LOG])


def _unsupported(key: str, value: str) -> ConfigError:
    return ConfigError(f"setting {key} = {value!r} is not supported by this version; remove it to start without")
