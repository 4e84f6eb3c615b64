// RUN: rhino-opt %s | filecheck %s
// RUN: rhino-opt %s | rhino-opt | filecheck %s
// RUN: rhino-opt %s --generic | rhino-opt | filecheck %s

// CHECK: dist.mesh @mesh = <["dp"=2, "tp"=4]>
dist.mesh @mesh = <["dp"=2, "tp"=4]>

// CHECK-LABEL: func.func @collectives
func.func @collectives(%x: tensor<4x24xf32>, %p: tensor<4x24xi1>) {
  // CHECK-NEXT: %{{.*}} = dist.all_reduce sum %x over ["tp"] : tensor<4x24xf32>
  %0 = dist.all_reduce sum %x over ["tp"] : tensor<4x24xf32>
  // CHECK-NEXT: %{{.*}} = dist.all_reduce or %p over ["dp", "tp"] : tensor<4x24xi1>
  %1 = dist.all_reduce or %p over ["dp", "tp"] : tensor<4x24xi1>
  // CHECK-NEXT: %{{.*}} = dist.all_reduce max %x over ["tp":(1)2] : tensor<4x24xf32>
  %2 = dist.all_reduce max %x over ["tp":(1)2] : tensor<4x24xf32>
  // CHECK-NEXT: %{{.*}} = dist.all_gather %x dim 1 over ["tp"] period 32 : tensor<4x24xf32> -> tensor<4x96xf32>
  %3 = dist.all_gather %x dim 1 over ["tp"] period 32 : tensor<4x24xf32> -> tensor<4x96xf32>
  // CHECK-NEXT: %{{.*}} = dist.all_gather %x dim 0 over ["tp":(2)2, "dp"] : tensor<4x24xf32> -> tensor<16x24xf32>
  %4 = dist.all_gather %x dim 0 over ["tp":(2)2, "dp"] : tensor<4x24xf32> -> tensor<16x24xf32>
  // CHECK-NEXT: %{{.*}} = dist.reduce_scatter sum %x dim 0 over ["dp"] : tensor<4x24xf32> -> tensor<2x24xf32>
  %5 = dist.reduce_scatter sum %x dim 0 over ["dp"] : tensor<4x24xf32> -> tensor<2x24xf32>
  // CHECK-NEXT: %{{.*}} = dist.shard %x dim 1 over ["tp"] period 8 : tensor<4x24xf32> -> tensor<4x6xf32>
  %6 = dist.shard %x dim 1 over ["tp"] period 8 : tensor<4x24xf32> -> tensor<4x6xf32>
  // CHECK-NEXT: %{{.*}} = dist.all_to_all %x cut 1 join 0 over ["tp"] : tensor<4x24xf32> -> tensor<16x6xf32>
  %7 = dist.all_to_all %x cut 1 join 0 over ["tp"] : tensor<4x24xf32> -> tensor<16x6xf32>
  // CHECK-NEXT: %{{.*}} = dist.all_to_all %x cut 1 period 8 join 1 period 12 over ["tp"] : tensor<4x24xf32>
  %8 = dist.all_to_all %x cut 1 period 8 join 1 period 12 over ["tp"] : tensor<4x24xf32>
  // CHECK-NEXT: %{{.*}} = dist.permute %x over ["dp"] to [4, 5, 6, 7, 0, 1, 2, 3] : tensor<4x24xf32>
  %9 = dist.permute %x over ["dp"] to [4, 5, 6, 7, 0, 1, 2, 3] : tensor<4x24xf32>
  // CHECK-NEXT: %{{.*}} = dist.halo max %x dim 0 over ["dp"] low 1 high 2 : tensor<4x24xf32> -> tensor<7x24xf32>
  %halo = dist.halo max %x dim 0 over ["dp"] low 1 high 2 : tensor<4x24xf32> -> tensor<7x24xf32>
  // CHECK-NEXT: %{{.*}} = dist.axis_index ["tp", "dp"] : tensor<i64>
  %10 = dist.axis_index ["tp", "dp"] : tensor<i64>
  // CHECK-NEXT: %{{.*}} = dist.all_reduce sum %x over ["tp"] {reason = "a reshard", bytes = 576 : i64} : tensor<4x24xf32>
  %11 = dist.all_reduce sum %x over ["tp"] {reason = "a reshard", bytes = 576} : tensor<4x24xf32>
  func.return
}

// CHECK-LABEL: func.func @layouts
// CHECK-SAME: dist.layout = #dist.layout<[{"dp"}, {}] partial {"tp": sum}>
func.func @layouts(%x: tensor<4x24xf32> {dist.layout = #dist.layout<[{"dp"}, {}] partial {"tp": sum}>}) {
  // CHECK-NEXT: %{{.*}} = dist.reshard %x to #dist.layout<[{"dp"}, {"tp":8}]> : tensor<4x24xf32>
  %0 = dist.reshard %x to #dist.layout<[{"dp"}, {"tp":8}]> : tensor<4x24xf32>
  // CHECK-NEXT: %{{.*}} = dist.reshard %x to #dist.layout<[{"tp":(2)2, "dp"}, {}]> {note = #dist.axes<["dp", "tp":(1)2]>} : tensor<4x24xf32>
  %1 = dist.reshard %x to #dist.layout<[{"tp":(2)2, "dp"}, {}]> {note = #dist.axes<["dp", "tp":(1)2]>} : tensor<4x24xf32>
  func.return
}
